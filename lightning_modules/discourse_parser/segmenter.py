"""EDU segmenter: sequence tagging of words by a conditional random field over an encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor

from datamodules.text.edu_features import LAYOUT, EduFeatures, Request, SegmentationBatch, edu_features
from datamodules.text.language import ENGLISH_PARSER, warn_if_not_english
from datamodules.text.offsets import Span
from datamodules.text.subwords import MPNET
from lightning_modules.discourse_parser.boundary_network import BEGIN, LinearChainCRF, SegmentationNetwork, pool_pieces
from lightning_modules.discourse_parser.encoder_module import EncoderModule
from lightning_modules.discourse_parser.encoders import TokenEncoderOptions
from lightning_modules.discourse_parser.shipped import SMALL, shipped_name
from lightning_modules.metrics.boundaries import BoundaryF1
from lightning_modules.networks.passages import batches_of_similar_size
from lightning_modules.options import EncoderAdamWOptions
from lightning_modules.summarizer import evaluating

_CELLS = 32768  # maximum number of words, padding included, that are tagged in one pass, to bound memory


class EduSegmenter(EncoderModule):
    """Segmenter of texts into elementary discourse units (EDUs).

    A linear-chain CRF over each sentence tags words as beginning an EDU or not; the first word of a sentence always
    begins one. The vector of a word is the mean over its subwords in a pretrained encoder, or comes from a small
    encoder that is trained with the rest. Shapes: N words of P subwords in a batch, C sentences of up to T words.

    Args:
        encoder: encoder, see `TokenEncoderOptions`.
        projection: width that word vectors are projected to.
        hidden_size: width of each direction of the LSTM over a sentence.
        dropout: dropout probability of word vectors, their projections, and LSTM states.
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
        self.network = SegmentationNetwork(  # `layout`: number of layout features of a word
            size=self.encoder.size, layout=LAYOUT, projection=projection, hidden_size=hidden_size, dropout=dropout
        )
        self.crf = LinearChainCRF(2)  # tags `OTHER` and `BEGIN`

    def vectors(self, batch: SegmentationBatch, pieces: Tensor | None = None) -> Tensor:
        """Return the encoder vector of each word, [N, D]; `pieces`: subword vectors, [P, D], None to encode texts."""
        if self.subwords is None:  # the small encoder reads words
            return torch.cat(self.encoder(batch.words.split(batch.word_counts)))
        if pieces is None:
            pieces = torch.cat(self.encoder(batch.pieces.split(batch.piece_counts)))         # [P, D]
        return pool_pieces(pieces, batch.piece_words, len(batch.words))

    def _training_vectors(self, batch: SegmentationBatch) -> Tensor:
        """Return the encoder vector of each word, [N, D], computed only once for each text if the encoder is frozen."""
        digests = [text.digest for text in batch.texts]
        return torch.cat(self.cached_vectors(digests, lambda: self.vectors(batch).split(batch.word_counts)))

    def emissions(self, batch: SegmentationBatch, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return tag scores [C, T, 2] and the mask of words [C, T] for C padded sentences, from word vectors [N, D]."""
        words = self.network.words(vectors, batch.layout)                                    # [N, projection + layout]
        mask = torch.arange(batch.rows.shape[1]) < batch.lengths[:, None]                    # [C, T]
        return self.network(words, batch.rows, batch.lengths, batch.begins), mask.to(words.device)

    def loss_terms(self, batch: SegmentationBatch) -> dict[str, Tensor]:
        """Return -log p(tags) per word; a sentence's first word has tag `BEGIN` even if it continues a gold EDU."""
        emissions, mask = self.emissions(batch, self._training_vectors(batch))
        tags = batch.tags.masked_fill(batch.begins, BEGIN)  # any other tag is impossible at the start of a sentence
        return {"loss": -self.crf.log_likelihood(emissions, tags[batch.rows], mask) / len(batch.words)}  # tags: [C, T]

    def segment(self, requests: Sequence[Request], piece_vectors: Sequence[Tensor] | None = None) -> list[list[Span]]:
        """Segment texts in eval mode; return the EDUs of each as character offsets (start, end), end exclusive.

        EDUs are in order, do not overlap, cover all visible characters and have no white space at their ends. Without
        offsets of sentences, a text is split by `split_sentences`. A blank text has no EDU, any other at least one.
        `piece_vectors` are the subword vectors of each text, [P, D], if a parser with an equal encoder computed them.
        Raises a `UserError` if a sentence or a paragraph lies outside its text.
        """
        if self.is_english:
            warn_if_not_english(ENGLISH_PARSER, (request.text for request in requests))
        vectors = piece_vectors or [None] * len(requests)  # None: the encoder computes them
        with evaluating(self):
            return [self._segment_one(text, pieces, i) for i, (text, pieces) in enumerate(zip(requests, vectors))]

    def _segment_one(self, request: Request, pieces: Tensor | None, number: int) -> list[Span]:
        """Segment the text with index `number`; `pieces` are its subword vectors, [P, D], None to encode it."""
        name = getattr(request, "id", f"text {number}")  # for error messages; a `Request` may have no id
        features = edu_features(request, self.subwords, name=name)
        if not features.offsets:  # no words
            return []
        batch = SegmentationBatch.of([features]).to(self.device)
        return self._edus(request.text, features, self._tags(batch, self.vectors(batch, pieces)))

    def columns_of(self, parser: EncoderModule) -> list[int] | None:
        """Return which columns of this segmenter's token vectors make the token vectors of a parser, in their order.

        None unless both have equal encoder weights and windows, and the segmenter has all layers that the parser has.
        """
        tuned_by = self.settings["tuned_by"]  # parser whose encoder this is; None: pretrained weights
        if parser.has_fixed_encoder:
            equal_weights = tuned_by == parser.settings["tuned_by"]
        else:
            equal_weights = tuned_by is not None and tuned_by == parser.source  # the parser's folder
        equal_options = all(parser.settings[name] == self.settings[name] for name in ("encoder", "window"))
        layers, parser_layers = self.settings["layers"], parser.settings["layers"]
        if not (self.has_fixed_encoder and equal_weights and equal_options and set(parser_layers) <= set(layers)):
            return None
        width = self.encoder.size // len(layers)  # of one layer: vectors of all layers are concatenated
        return [layers.index(layer) * width + column for layer in parser_layers for column in range(width)]

    def _tags(self, batch: SegmentationBatch, vectors: Tensor) -> Tensor:
        """Return the tag of every word, [N], from word vectors [N, D]; batches of sentences bound memory."""
        words = self.network.words(vectors, batch.layout)                                    # [N, projection + layout]
        tags = torch.zeros(len(words), dtype=torch.long, device=words.device)
        for sentences in batches_of_similar_size(batch.lengths.tolist(), _CELLS):  # indices of C sentences
            lengths = batch.lengths[sentences]  # number of words of each sentence, [C]
            rows = batch.rows[sentences, : int(lengths.max())]  # indices of words, [C, T]
            mask = (torch.arange(rows.shape[1]) < lengths[:, None]).to(words.device)
            scores = self.network(words, rows, lengths, batch.begins)  # of tags, [C, T, 2]
            tags[rows[mask]] = self.crf.decode(scores, mask)[mask]
        return tags

    @staticmethod
    def _edus(text: str, features: EduFeatures, tags: Tensor) -> list[Span]:
        """Return the EDUs of a text, (start, end) without white space at the end, for the tags of its words, [N]."""
        words = ((tags == BEGIN).cpu() & ~features.begins).nonzero().squeeze(1).tolist()  # EDU starts within sentences
        # EDUs start at these words and at the starts of sentences, all in characters
        starts = sorted({*features.starts, *(features.offsets[word][0] for word in words)})
        spans = zip(starts, [*starts[1:], len(text)])  # an EDU ends where the next one starts
        return [(start, start + len(text[start:end].rstrip())) for start, end in spans]

    def _score(self, batch: SegmentationBatch, stage: str) -> None:
        """Update the boundary F1 of a stage (`val` or `test`) with the texts of a batch."""
        tags = self._tags(batch, self._training_vectors(batch))
        by_text = zip(*(flags.split(batch.word_counts) for flags in (tags, batch.tags, batch.begins)))
        for flags_of_text in by_text:  # flags of words: predicted EDU, gold EDU, sentence beginnings
            beginnings = [flags.nonzero().squeeze(1).tolist() for flags in flags_of_text]  # indices of words
            self.metrics[stage].update(*beginnings)


def load_default(encoder: str | None = None) -> EduSegmenter:
    """Load the shipped segmenter over a parser's MPNet or `small`; for others `minilm` if installed, else `small`."""
    return EduSegmenter.load({MPNET: "mpnet", SMALL: SMALL}.get(encoder) or shipped_name())
