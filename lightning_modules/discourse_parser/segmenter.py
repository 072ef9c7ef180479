"""EDU segmenter: sequence tagging of words by a conditional random field over an encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor

from datamodules.text.edu_features import LAYOUT, EduFeatures, Request, SegmentationBatch, edu_features
from datamodules.text.language import ENGLISH_PARSER, warn_if_not_english
from datamodules.text.offsets import Span
from datamodules.text.subwords import MPNET
from lightning_modules.discourse_parser.boundary_network import BEGIN, LinearChainCRF, SegmentationNetwork, pool_pieces
from lightning_modules.discourse_parser.encoder_module import EncoderModule, batches_of_similar_size
from lightning_modules.discourse_parser.encoders import TokenEncoderOptions
from lightning_modules.discourse_parser.shipped import shipped_name
from lightning_modules.metrics.boundaries import BoundaryF1
from lightning_modules.options import EncoderAdamWOptions

_CELLS = 32768  # words, padding included, that are tagged in one pass


class EduSegmenter(EncoderModule):
    """Segmenter of texts into elementary discourse units (EDUs).

    A linear-chain CRF over each sentence tags words as beginning an EDU or not; the first word of a sentence always
    begins one. The vector of a word is the mean over its subwords in a pretrained encoder, or comes from a small
    encoder that is trained with the rest.

    Args:
        encoder: encoder, see `TokenEncoderOptions`.
        projection: width that word vectors are projected to.
        hidden_size: width of each direction of the LSTM over a sentence.
        dropout: probability, applied to vectors, projections and states.
        optimizer: options of AdamW.

    Raises:
        UserError: if an encoder's package is not installed.
    """

    main_score = "f1"
    parts = ("network.", "crf.")
    kind = "edu_segmenter"
    noun = "a segmenter"

    def __init__(
        self,
        encoder: TokenEncoderOptions = TokenEncoderOptions(),
        projection: int = 160,
        hidden_size: int = 128,
        dropout: float = 0.3,
        optimizer: EncoderAdamWOptions = EncoderAdamWOptions(lr=2e-3, encoder_lr=3e-5),
    ) -> None:
        settings = {"projection": projection, "hidden_size": hidden_size, "dropout": dropout}
        super().__init__(encoder, dropout, optimizer, settings, BoundaryF1)
        self.network = SegmentationNetwork(
            size=self.encoder.size, layout=LAYOUT, projection=projection, hidden_size=hidden_size, dropout=dropout
        )
        self.crf = LinearChainCRF(2)

    def vectors(self, batch: SegmentationBatch) -> Tensor:
        """Return the encoder vector of each word, [N, D]."""
        if self.subwords is None:
            return torch.cat(self.encoder(batch.words.split(batch.word_counts)))
        pieces = torch.cat(self.encoder(batch.pieces.split(batch.piece_counts)))             # [P, D]
        return pool_pieces(pieces, batch.piece_words, len(batch.words))

    def _training_vectors(self, batch: SegmentationBatch) -> Tensor:
        """Return the same as `vectors`, computed only once for each text if the encoder is frozen."""
        if not self.has_fixed_encoder:
            return self.vectors(batch)
        texts = [text.digest for text in batch.texts]
        cached = self.cached_vectors(texts, lambda: self.vectors(batch).split(batch.word_counts))
        return torch.cat(cached)                                                             # [N, D]

    def emissions(self, batch: SegmentationBatch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of the tags [C, T, 2] and the mask of words [C, T]."""
        words = self.network.words(vectors, batch.layout)
        mask = torch.arange(batch.rows.shape[1]) < batch.lengths[:, None]
        return self.network(words, batch.rows, batch.lengths, batch.begins), mask.to(words.device)

    def loss(self, batch: SegmentationBatch) -> Tensor:
        """Return -log p(tags), averaged over the words of the batch; sentences begin EDUs, also within a gold EDU."""
        emissions, mask = self.emissions(batch, self._training_vectors(batch))
        tags = batch.tags.masked_fill(batch.begins, 1)  # 0 is impossible there
        return -self.crf.log_likelihood(emissions, tags[batch.rows], mask) / len(batch.words)

    def loss_terms(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Return the loss, the only term."""
        return {"loss": self.loss(batch)}

    @torch.no_grad()
    def segment(self, requests: Sequence[Request], piece_vectors: Sequence[Tensor] | None = None) -> list[list[Span]]:
        """Segment texts into EDUs: their character offsets (start, end), end exclusive.

        EDUs are in order, do not overlap, cover all visible characters and have no white space at their ends. A text
        without sentences is split by `split_sentences`. A blank text has no EDU, any other text at least one.
        `piece_vectors` are those of the subwords of each text from an equal encoder, [P, D].

        Raises:
            UserError: if a sentence or a paragraph lies outside its text.
        """
        if self.is_english:
            warn_if_not_english(ENGLISH_PARSER, (request.text for request in requests))
        training = self.training
        self.eval()
        try:
            vectors = piece_vectors or [None] * len(requests)
            return [self._segment_one(*text, number) for number, text in enumerate(zip(requests, vectors))]
        finally:
            self.train(training)

    def _segment_one(self, request: Request, pieces: Tensor | None, number: int) -> list[Span]:
        name = getattr(request, "id", f"text {number}")
        features = edu_features(request, self.subwords, name=name)
        if not features.offsets:
            return []
        batch = SegmentationBatch.of([features]).to(self.device)
        if pieces is None:
            vectors = self.vectors(batch)
        else:
            vectors = pool_pieces(pieces, batch.piece_words, len(batch.words))               # [N, D]
        return self._edus(request.text, features, self._tags(batch, vectors))

    def columns_of(self, parser: EncoderModule) -> list[int] | None:
        """Return which columns of the frozen encoder equal the vectors of a parser; None if they differ."""
        tuned_by = self.settings["tuned_by"]
        is_equal = parser.has_fixed_encoder if tuned_by is None else tuned_by == parser.source
        same = all(parser.settings[name] == self.settings[name] for name in ("encoder", "window"))
        own, others = self.settings["layers"], parser.settings["layers"]
        if not (self.has_fixed_encoder and is_equal and same and set(others) <= set(own)):
            return None
        width = self.encoder.size // len(own)
        return [own.index(layer) * width + column for layer in others for column in range(width)]

    def _tags(self, batch: SegmentationBatch, vectors: Tensor) -> Tensor:
        """Return the tag of every word, [N]; sentences are batched by length, so that long texts need little memory."""
        words = self.network.words(vectors, batch.layout)
        tags = torch.zeros(len(words), dtype=torch.long, device=words.device)
        for group in batches_of_similar_size(batch.lengths.tolist(), _CELLS):
            lengths = batch.lengths[group]
            rows = batch.rows[group, : int(lengths.max())]
            mask = (torch.arange(rows.shape[1]) < lengths[:, None]).to(words.device)
            scores = self.network(words, rows, lengths, batch.begins)
            tags[rows[mask]] = self.crf.decode(scores, mask)[mask]
        return tags

    @staticmethod
    def _edus(text: str, features: EduFeatures, tags: Tensor) -> list[Span]:
        """Return the EDUs for tags; an EDU at the start of a sentence begins at its first character."""
        inner = ((tags == BEGIN).cpu() & ~features.begins).nonzero().squeeze(1).tolist()
        starts = sorted({*features.starts, *(features.offsets[i][0] for i in inner)})
        spans = zip(starts, [*starts[1:], len(text)])
        return [(start, start + len(text[start:end].rstrip())) for start, end in spans]

    def _score(self, batch: SegmentationBatch, stage: str) -> None:
        """Compute the boundary F1."""
        tags = self._tags(batch, self._training_vectors(batch))
        parts = zip(*(values.split(batch.word_counts) for values in (tags, batch.tags, batch.begins)))
        for predicted, gold, sentence_begins in parts:
            words = [set(values.nonzero().squeeze(1).tolist()) for values in (predicted, gold, sentence_begins)]
            self.metrics[stage].update(*words)


def load_default(encoder: str | None = None) -> EduSegmenter:
    """Load the segmenter for a parser's encoder: `mpnet` for MPNet, else `minilm` if it is installed, else `small`."""
    return EduSegmenter.load("mpnet" if encoder == MPNET else shipped_name())
