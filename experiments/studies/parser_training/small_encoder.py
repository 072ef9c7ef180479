"""Pre-train the small encoder of parsers and segmenters: it learns to predict the word vectors of a pretrained encoder.

    python -m experiments.studies.parser_training.small_encoder stories.jsonl abstracts.jsonl --out small_encoder

Texts need no annotation. A word's target is the mean vector of its subwords in the teacher, reduced by PCA; the loss is
the mean squared error of a linear map of the small encoder's word vector (distillation of hidden states, as in
TinyBERT, Jiao et al. 2020). The weights in OUT initialize a parser or a segmenter (`--model.encoder.start_from OUT`).
"""

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from datamodules.corpora.corpus import make_document
from datamodules.corpora.parallel import progress_bar
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document, UserError
from datamodules.text.edu_features import EduFeatures, SegmentationBatch, edu_features
from datamodules.text.subwords import Subwords
from lightning_modules.discourse_parser.boundary_network import pool_pieces
from lightning_modules.discourse_parser.encoders import TokenEncoderOptions, multiplies_bfloat16, pretrained_encoder
from lightning_modules.networks.text_encoder import SmallEncoder, TextEncoder
from lightning_modules.stored import save_weights
from precis.command_line.commands import guess_corpus

PASSAGE = 180  # words
TARGET = 192  # width of the targets, at most
BATCH, HELD_OUT = 16, 100  # passages
RATE = 3e-3


class Passage(NamedTuple):
    """Words of a text, and their vectors by the teacher.

    Attributes:
        words: hashed features, [N, FEATURES].
        targets: reduced vectors of the teacher, float16 [N, D].
    """

    words: Tensor
    targets: Tensor


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the documents of data files in passages of `PASSAGE` words, each text once.

    The remainder of a document is dropped if it has at most a ninth of these words.

    Raises:
        UserError: if a file or a record cannot be read.
    """
    passages, texts = [], set()
    for file in files:
        corpus = guess_corpus(file)
        for record in corpus.records("train"):
            document = make_document(record)
            if not isinstance(document, Document):
                raise UserError(str(document))
            if document.text not in texts:
                texts.add(document.text)
                passages += _cut(document.text)
    return passages


def _cut(text: str) -> Iterator[str]:
    words = [match.span() for match in re.finditer(r"\S+", text)]
    for start in range(0, len(words), PASSAGE):
        part = words[start : start + PASSAGE]
        if len(part) > PASSAGE // 9:
            yield text[part[0][0] : part[-1][1]]


class Teacher:
    """Word vectors of a pretrained encoder, reduced by PCA.

    Components are divided by the square root of their standard deviation, so that the first ones do not make up the
    whole loss, and all together have a variance of one.

    Args:
        name: encoder, as in `load_encoder`, or `minilm`.
        layers: hidden states that are concatenated.
        passages: passages to compute the components from.

    Raises:
        UserError: if the encoder cannot be loaded, or has no such layers.
    """

    def __init__(self, name: str, layers: Sequence[int], passages: Sequence[str]) -> None:
        self.subwords = Subwords(name)
        options = TokenEncoderOptions(name, layers)
        try:
            self.encoder: TextEncoder = pretrained_encoder(options, self.subwords).eval()
        except ValueError as error:
            raise UserError(f"--teacher {name} --layers {layers}: {error}") from error
        vectors = torch.cat(self._vectors(self._features(passages)))                         # [N, D]
        self.mean = vectors.mean(0)
        centred = vectors - self.mean
        variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
        deviations = variances[-TARGET:].clamp(min=1e-12).sqrt()
        scales = deviations.rsqrt()
        self.axes = axes[:, -TARGET:] * scales / (deviations * scales).square().mean().sqrt()

    def _features(self, passages: Sequence[str]) -> list[EduFeatures]:
        requests = [ParseRequest("", passage, (), ()) for passage in passages]
        features = [edu_features(request, self.subwords) for request in requests]
        return [row for row in features if row.offsets]

    @torch.no_grad()
    def _vectors(self, features: list[EduFeatures]) -> list[Tensor]:
        batch = SegmentationBatch.of(features)
        with torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bfloat16()):
            pieces = torch.cat(self.encoder(batch.pieces.split(batch.piece_counts))).float()
        return list(pool_pieces(pieces, batch.piece_words, len(batch.words)).split(batch.word_counts))

    def __call__(self, passages: Sequence[str]) -> list[Passage]:
        """Return words and targets of passages; those without a word are left out."""
        features = self._features(passages)
        targets = ((vectors - self.mean) @ self.axes for vectors in self._vectors(features))
        return [Passage(row.words, target.half()) for row, target in zip(features, targets)]


class Student(nn.Module):
    """Small encoder with a linear map to targets of width `target`."""

    def __init__(self, target: int) -> None:
        super().__init__()
        self.encoder = SmallEncoder(dropout=0.1)
        self.map = nn.Linear(self.encoder.size, target)

    def loss(self, passages: Sequence[Passage]) -> Tensor:
        """Return the mean squared error; predicting the mean gives about 1."""
        predicted = self.map(torch.cat(self.encoder([passage.words for passage in passages])))
        return mse_loss(predicted, torch.cat([passage.targets for passage in passages]).float())


def train(student: Student, passages: Sequence[Passage], epochs: int) -> None:
    """Train on all but the first `HELD_OUT` passages, and print the loss of these after each epoch."""
    held_out, training = passages[:HELD_OUT], passages[HELD_OUT:]
    optimizer = torch.optim.AdamW(student.parameters(), lr=RATE)
    steps = epochs * -(-len(training) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.05)
    with progress_bar() as progress:
        task = progress.add_task("training", total=steps)
        for epoch in range(epochs):
            start = time.monotonic()
            student.train()
            for batch in torch.randperm(len(training)).split(BATCH):
                optimizer.zero_grad()
                student.loss([training[number] for number in batch]).backward()
                nn.utils.clip_grad_norm_(student.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                progress.advance(task)
            student.eval()
            with torch.no_grad():
                loss = student.loss(held_out).item()
            progress.print(f"epoch {epoch}: held-out loss {loss:.4f}, {time.monotonic() - start:.0f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    program = "python -m experiments.studies.parser_training.small_encoder"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    parser.add_argument("files", type=Path, nargs="+", help="data files with texts, see `precis corpus`")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--teacher", default="minilm", help="minilm, or a Hugging Face name or folder")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4, 6], help="hidden states of the teacher")
    parser.add_argument("--epochs", type=int, default=6, help="number of passes over the texts")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights, dropout and order")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: at least one pass over the texts is needed")
    torch.manual_seed(options.seed)
    try:
        options.out.mkdir(parents=True, exist_ok=True)  # fail before the work
        texts = read_passages(options.files)
        if len(texts) <= HELD_OUT:
            raise UserError(f"{len(texts)} passages of {PASSAGE} words; at least {HELD_OUT + 1} are needed")
        texts = [texts[number] for number in torch.randperm(len(texts)).tolist()]
        teacher = Teacher(options.teacher, options.layers, texts[: 2 * HELD_OUT])
        passages: list[Passage] = []
        with progress_bar() as progress:
            for start in progress.track(range(0, len(texts), 32), description="word vectors of the teacher"):
                passages += teacher(texts[start : start + 32])
    except (UserError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    student = Student(passages[0].targets.shape[1])
    train(student, passages, options.epochs)
    save_weights(options.out, {"teacher": options.teacher}, student.encoder.state_dict())
    print(f"{options.out}: weights of the small encoder, from {sum(len(p.words) for p in passages):,} words")


if __name__ == "__main__":
    main()
