"""Compare the shipped `extractive` with a reference scorer on the same documents, as a table in Markdown.

    python -m experiments.studies.shipped_summarizers.reference_scorer DATA --out reference.md

The reference is the quick sketch whose gains over lead are the aims of the shipped model: two Transformer layers over
frozen MiniLM vectors of sentences, their positions and their lengths, trained in a minute on the abstracts, documents
and stories that `extractive` was trained on. Sentences are split without regard to paragraphs.
"""

import math
import random
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from datamodules.documents import Document
from datamodules.text.oracle import sentence_scores
from datamodules.text.sentences import split_sentences
from experiments.studies.discourse_extraction.documents import sentence_vectors
from experiments.studies.shipped_summarizers.documents import Row, read
from experiments.studies.shipped_summarizers.evaluate import SENTENCES, cell, scores_of, shipped

VECTOR, FEATURES, WIDTH = 384, 11, 160  # sizes of MiniLM's vectors, of features, and of the reference
BATCH = {"scitldr": 24, "gum": 8, "squality": 3}  # training corpora, and documents in a batch of each
STORIES = 50  # for training
STEPS, WARM_UP, SEEDS = 900, 50, (1, 2)
MAX_SENTENCES = 250  # of a training document
TEMPERATURE = 0.06  # of the softmax that turns F1 of sentences into a target distribution
# validation corpora, and how many of the first documents the sketch was reported on
REPORTED = {"scitldr": 400, "gum": 30, "squality": 15, "sumpubmed": 50}


class Example(NamedTuple):
    """A document as the reference reads it.

    Attributes:
        vectors: normalized vectors of sentences, [S, 384].
        features: see `features_of`, [S, 11].
        target: F1 of each sentence alone and the summaries, [S].
    """

    vectors: Tensor
    features: Tensor
    target: Tensor


def sentences_and_references(row: Row, corpus: str, split: str) -> tuple[list[str], list[list[str]]] | None:
    """Return the sentences and the references of a record, or None for one that is left out."""
    if corpus == "scitldr":
        return row["sentences"], [split_sentences(summary) for summary in row["summaries"]]
    if corpus == "gum":
        by_source = zip(row["summaries"], row["summary_sources"], strict=True)
        human = [text for text, source in by_source if source.startswith("human") or "postedited" in source]
        if not human or (split == "train" and ("NC" in row["license"] or "ND" in row["license"])):
            return None  # no human summary, or no open license
        return [row["text"][start:end] for start, end in row["sentences"]], [split_sentences(text) for text in human]
    if corpus == "squality":
        return split_sentences(row["document"]), [split_sentences(summary) for summary in row["summaries"]]
    return split_sentences(row["document"]), [row["summary"].split("\n")]


def read_documents(data: Path, corpus: str, split: str) -> list[Document]:
    """Return the documents of a split; of a story with several questions, those about the first one, its plot."""
    documents, stories = [], set()
    for row in read(data / corpus / f"{split}.jsonl.gz"):
        if corpus == "squality":
            if row["document"][:200] in stories or (split == "train" and len(stories) == STORIES):
                continue
            stories.add(row["document"][:200])  # the beginning identifies a story
        if (texts := sentences_and_references(row, corpus, split)) is not None:
            documents.append(Document(row["id"], parts=[texts[0]], references=texts[1]))
    return documents


def features_of(vectors: Tensor, sentences: Sequence[str]) -> Tensor:
    """Return features of position, length and centrality of sentences, [S, 11]."""
    size = len(sentences)
    place = torch.arange(size).float()
    words = torch.tensor([min(len(sentence.split()), 80) for sentence in sentences]).float()
    center = vectors.mean(0)
    similarity = (vectors @ vectors.T).fill_diagonal_(0)                             # [S, S]
    is_sentence = [sentence.strip()[-1:] in ".!?\"'" for sentence in sentences]  # otherwise it may be a heading
    columns = [
        place / max(1, size - 1), (place + 1).log() / 5, (size - place).log() / 5,
        (place == 0).float(), (place == size - 1).float(), torch.full((size,), math.log(size) / 5),
        words.clamp(min=1).log() / 4, (words < 4).float(),
        vectors @ (center / center.norm()), similarity.clamp(min=0).mean(1) * 5,
        torch.tensor(is_sentence).float(),
    ]  # fmt: skip
    return torch.stack(columns, 1)


def examples_of(documents: Sequence[Document], with_target: bool) -> Iterator[Example]:
    """Encode documents; without targets they are 0."""
    for document, vectors in zip(documents, sentence_vectors(documents, "minilm"), strict=True):
        vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-6)  # zero for a sentence without tokens
        target = torch.zeros(len(vectors))
        if with_target:
            target = torch.tensor(sentence_scores(document.sentences, document.references))
        yield Example(vectors, features_of(vectors, document.sentences), target)


class ReferenceScorer(nn.Module):
    """Two pre-norm Transformer layers over sentences, and a linear score for each."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Linear(VECTOR, WIDTH)
        self.features = nn.Sequential(nn.Linear(FEATURES, 64), nn.GELU(), nn.Linear(64, WIDTH))
        self.dropout = nn.Dropout(0.2)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.2, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Return scores, -1e4 at padding, and the targets, both [B, S]."""
        vectors, features, targets = (pad_sequence(list(tensors), batch_first=True) for tensors in zip(*examples))
        sizes = torch.tensor([len(example.target) for example in examples])
        mask = torch.arange(vectors.shape[1]) < sizes.unsqueeze(1)                   # [B, S], True at sentences
        # the scale gives coordinates of unit vectors a variance of about 1
        x = self.features(features) + self.dropout(self.vectors(vectors * VECTOR**0.5))
        scores = self.score(self.encoder(x, src_key_padding_mask=~mask)).squeeze(-1)
        return scores.masked_fill(~mask, -1e4), (targets / TEMPERATURE).masked_fill(~mask, -1e4)


def train(examples: dict[str, list[Example]], seed: int) -> ReferenceScorer:
    """Train a reference by cross-entropy with the softmax of the targets; each batch is of one corpus, at random."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    scorer = ReferenceScorer()
    optimizer = torch.optim.AdamW(scorer.parameters(), 6e-4, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / WARM_UP) * (1 - step / STEPS))
    for _ in range(STEPS):
        corpus = rng.choice(list(examples))
        batch = rng.sample(examples[corpus], BATCH[corpus])
        scores, targets = scorer([Example(*(tensor[:MAX_SENTENCES] for tensor in example)) for example in batch])
        loss = -(targets.softmax(1) * scores.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return scorer.eval()


def selected(document: Document, scores: Sequence[float], count: int) -> list[str]:
    """Return the sentences with the highest scores, in the order of the text."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    return [document.sentences[index] for index in sorted(order[:count])]


def rouge1(documents: Sequence[Document], summarize: Callable[[Document], list[str]]) -> np.ndarray:
    """Return ROUGE-1 of the summary of each document, [N]."""
    return np.array([scores_of(document, summarize(document))[0] for document in documents])


def rows_of_corpus(data: Path, corpus: str, scorers: Sequence[ReferenceScorer]) -> Iterator[str]:
    """Yield the rows of a corpus: of the documents that the sketch was reported on, and of all."""
    documents, count = read_documents(data, corpus, "val"), SENTENCES[corpus]
    lead = rouge1(documents, lambda document: document.sentences[:count])
    examples = list(examples_of(documents, with_target=False))
    of_seeds = []
    for scorer in scorers:
        with torch.inference_mode():
            scores = {document.id: scorer([example])[0][0].tolist() for document, example in zip(documents, examples)}
        of_seeds.append(rouge1(documents, lambda document, s=scores: selected(document, s[document.id], count)))
    reference = np.mean(of_seeds, 0)
    summaries = dict(zip((document.id for document in documents), shipped("extractive")(documents, count)))
    ours = rouge1(documents, lambda document: summaries[document.id])
    for size in sorted({REPORTED[corpus], len(documents)}):
        gains = [cell(values[:size], "+") for values in (reference - lead, ours - lead, ours - reference)]
        yield f"| {corpus} | {size} | {lead[:size].mean():.1f} | {' | '.join(gains)} |"


def main() -> None:
    """Train two references, and write the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the datasets")
    parser.add_argument("--out", type=Path, required=True, help="Markdown file to write")
    options = parser.parse_args()
    documents = {corpus: read_documents(options.data, corpus, "train") for corpus in BATCH}
    examples = {corpus: list(examples_of(texts, with_target=True)) for corpus, texts in documents.items()}
    scorers = [train(examples, seed) for seed in SEEDS]
    lines = ["| corpus | documents | lead | reference - lead | extractive - lead | extractive - reference |"]
    lines.append("|---|--:|--:|---|---|---|")
    for corpus in REPORTED:
        lines.extend(rows_of_corpus(options.data, corpus, scorers))
        print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
