"""Chart-based discourse parser: the best RST tree of a text, and the distribution over all trees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import pad_sequence

from datamodules.discourse.distributions import NUCLEARITIES, Rows
from datamodules.discourse.features import ParserBatch, label_classes, parser_features
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.relations import inventory_of
from datamodules.documents import UserError
from datamodules.text.language import ENGLISH_PARSER, warn_if_not_english
from datamodules.text.subwords import is_local
from lightning_modules.checkpoints import read_checkpoint
from lightning_modules.discourse_parser import discourse_charts
from lightning_modules.discourse_parser.chart import log_partition
from lightning_modules.discourse_parser.discourse_charts import ChartReader, Decoding, ParsedChart, document_ldd
from lightning_modules.discourse_parser.encoder_module import EncoderModule
from lightning_modules.discourse_parser.encoders import TokenEncoderOptions, multiplies_bfloat16
from lightning_modules.discourse_parser.ldd import LabelClasses
from lightning_modules.discourse_parser.segmenter import EduSegmenter, load_default
from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units, node_scores, pool_edus
from lightning_modules.metrics.parseval import Parseval
from lightning_modules.options import EncoderAdamWOptions
from lightning_modules.stored import digest
from lightning_modules.summarizer import evaluating

Precision = Literal["auto", "float32", "bfloat16"]

VERSION = 8  # increased whenever the same weights would give a different parse
_NUCLEUS_MIN_PROB = 1e-6  # with `rows: nucleus`, 1e-4 would lose 46 % of the probability mass of the LDD


class DiscourseParser(EncoderModule):
    """Chart parser that gives a distribution over binary RST trees and the labeled discourse distribution (LDD).

    The vector of an EDU is the first, last and mean token vector of an encoder, fed through a bidirectional LSTM with
    features of sentence and paragraph boundaries. A scorer assigns a score to every span and a distribution over
    nuclearity and relation (a class) to every node; a chart turns the scores into a distribution over all binary trees.

        loss = -log P(tree) - sum over its nodes of log P(class | node)

    is the exactly normalized negative log-likelihood of a labeled tree. Several scorers (`members`) form a mixture:
    their tree distributions and LDDs, p(EDU a is the nucleus of EDU b), are averaged, which is exact. The predicted
    tree has the highest expected number of correct spans and labels (minimum Bayes risk), or is the most probable one.

    A text of more than `cap` EDUs is split into chunks at paragraphs or sentences; each has a chart, and a chart over
    the chunks joins them. EDU vectors have the whole text as context. B texts, E EDUs, T tokens, N nodes, C classes.

    Args:
        encoder: encoder, see `TokenEncoderOptions`.
        inventory: coarse relations: `gum`, `rst_dt`, or the treebank's own, as a list of names or as a mapping from
            classes to the names that belong to them; kept with the weights.
        members: number of scorers.
        hidden_size: width of a scorer.
        fit_size: width of the vectors that score how two parts of a node fit.
        dropout: probability in all layers of a scorer.
        cap: maximum number of EDUs of a chart.
        class_temperature: divides class logits when a text is parsed, not in training. It is stored with the weights;
            `python -m experiments.studies.parser_training.class_temperature` fits it on held-out documents.
        decoding: `mbr`, `mbr_spans` or `cky`; see `ChartReader`.
        rows: which EDUs count in the LDD: all in a node's nucleus (`side`), or only nuclei of their parent (`nucleus`).
        band: half-width of the LDD: maximum distance, in EDUs, of the pairs that are kept.
        min_prob: for the LDD, nodes above this probability (at most 1e-6 with `nucleus`) have their classes scored one
            by one; `ChartReader` explains what the other nodes get.
        encoder_precision: data type of matrix products of a pretrained encoder, and of the scorers over it, when a text
            is parsed. `auto` is `bfloat16` where the processor or GPU has instructions for it, and `float32` elsewhere;
            on CPUs, stored values of the LDD differ by 0.0004 between the two (root mean square; 0.016 at most).
        optimizer: options of AdamW.

    Raises:
        UserError: if an encoder's package is not installed, or `rows` is unknown.
        ValueError: if another argument is out of range.
    """

    main_score = "original_parseval/F"
    parts = ("scorers.",)
    kind = "discourse_parser"
    noun = "a discourse parser"

    def __init__(
        self,
        encoder: TokenEncoderOptions = TokenEncoderOptions(),
        inventory: list[str] | dict[str, list[str]] | str = "gum",
        members: int = 1,
        hidden_size: int = 192,
        fit_size: int = 32,
        dropout: float = 0.4,
        cap: int = 400,
        class_temperature: float = 1.0,
        decoding: Decoding = "mbr",
        rows: Rows = "side",
        band: int = 128,
        min_prob: float = 1e-4,
        encoder_precision: Precision = "auto",
        optimizer: EncoderAdamWOptions = EncoderAdamWOptions(lr=1e-3),
    ) -> None:
        if members < 1 or cap < 2 or band < 1:  # `chunk_bounds` needs a `cap` of 2
            raise ValueError(f"members {members}, cap {cap}, band {band}: must be at least 1, 2 and 1")
        if rows not in get_args(Rows):
            raise UserError(f"rows {rows!r} is none of {', '.join(get_args(Rows))}")
        # what config.json stores with the weights, besides options of the encoder
        settings = {"inventory": inventory, "members": members, "hidden_size": hidden_size, "fit_size": fit_size}
        settings |= {"dropout": dropout, "class_temperature": class_temperature}
        super().__init__(encoder, dropout, optimizer, settings, Parseval)
        self.inventory = inventory_of(inventory)
        self.cap = cap
        self.rows = rows
        self.band = band
        self.min_prob = min_prob
        self.encoder_precision = encoder_precision
        self.classes = label_classes(self.inventory)
        self.relations = tuple(self.inventory.coarse)
        nuclearities, relation_names = zip(*self.classes)
        relation_ids = [self.relations.index(name) for name in relation_names]
        classes = LabelClasses.of(list(nuclearities), relation_ids, len(self.relations))  # as tensors
        vector_size = 3 * self.encoder.size  # the first, last and mean token vector of an EDU
        options = {"classes": len(self.classes), "dropout": dropout, "fit_size": fit_size}
        self.scorers = nn.ModuleList(DiscourseScorer(vector_size, hidden_size, **options) for _ in range(members))
        self.reader = ChartReader(self.scorers, classes, decoding, class_temperature, self._autocast)
        self.segmenter: EduSegmenter | None = None  # `load_default` loads one when it is first needed
        self._fingerprint: str | None = None  # cached, because computing `fingerprint` reads all weights

    def vectors(self, batch: ParserBatch, texts: Sequence[Tensor] | None = None) -> Tensor:
        """Return padded EDU vectors, [B, E, 3 H]; `texts` are token vectors of each text, [T, H], None to encode it."""
        if texts is None:
            texts = self.encoder(batch.tokens.split(batch.token_counts))             # [T, H] each
        token_edus = batch.token_edus.split(batch.token_counts)                      # [T] each
        pooled = [pool_edus(*text) for text in zip(texts, token_edus, batch.sizes.tolist())]
        return pad_sequence(pooled, batch_first=True)

    def _training_vectors(self, batch: ParserBatch) -> Tensor:
        """Return the padded EDU vectors of a batch, [B, E, 3 H], cached for each text if the encoder is frozen."""

        def compute() -> list[Tensor]:
            return [vectors[:size] for vectors, size in zip(self.vectors(batch), batch.sizes.tolist())]  # no padding

        return pad_sequence(self.cached_vectors(batch.digests, compute), batch_first=True)

    def loss_terms(self, batch: ParserBatch) -> dict[str, Tensor]:
        """Return -log P(tree) and -log P(classes), means over nodes of a text, then over texts, summed over scorers."""
        vectors = self._training_vectors(batch)                                      # [B, E, 3 H]
        layout = layout_of(batch)
        document, start, split, end, gold_class = batch.nodes.unbind(1)              # [N] each
        # weight of each node of a text of E EDUs, which has E - 1 nodes; a text of one EDU has none, [B]
        weight = 1 / (layout.sizes - 1).clamp(min=1) / len(batch.ids)
        terms = dict.fromkeys(("tree", "classes"), vectors.new_zeros(()))
        for scorer in self.scorers:
            tables = scorer.tables(vectors, layout)  # of terms of spans
            potentials = scorer.potentials(tables, layout, Units.edus(layout))  # scores of spans and splits
            # -log P(tree) = log Z - sum of the scores of the nodes of the gold tree
            gold_scores = node_scores(potentials, document, start, split, end) * weight[document]
            log_z = log_partition(potentials, layout.sizes) * weight                 # [B]
            terms["tree"] = terms["tree"] + log_z.sum() - gold_scores.sum()
            logits = scorer.class_logits(tables, layout, document, start, split, end)  # [N, C]
            nll = cross_entropy(logits, gold_class, reduction="none") * weight[document]
            terms["classes"] = terms["classes"] + nll.sum()
        return terms

    def charts(self, batch: ParserBatch, vectors: Tensor, with_nodes: bool = True) -> list[list[ParsedChart]]:
        """Return the charts of each text from EDU vectors [B, E, 3 H]: one, or one per chunk and one over chunks."""
        edus = zip(batch.sentence.cpu(), batch.paragraph.cpu(), batch.sizes.tolist())  # arguments of `chunk_bounds`
        chunks = [discourse_charts.chunk_bounds(*edus_of_text, self.cap) for edus_of_text in edus]
        # `rows: side` approximates nodes below `min_prob`; `nucleus` leaves them out, so it needs a lower threshold
        min_prob = self.min_prob if self.rows == "side" else min(self.min_prob, _NUCLEUS_MIN_PROB)
        return self.reader.compute_charts(vectors, layout_of(batch), chunks, with_nodes, min_prob)

    def predict_step(self, batch: Sequence[ParseRequest], batch_idx: int = 0) -> list[DiscourseParse]:
        """Parse texts in eval mode, after segmenting those whose request has no EDUs; a `ValueError` for blank ones."""
        if empty := [request.id for request in batch if request.empty]:
            raise ValueError(f"document {empty[0]!r} is empty; leave empty documents out")
        if self.is_english:
            warn_if_not_english(ENGLISH_PARSER, (request.text for request in batch))
        with evaluating(self):
            return self._parses(batch)

    def _parses(self, batch: Sequence[ParseRequest]) -> list[DiscourseParse]:  # see `predict_step`
        edus, token_vectors = self._segment(batch)  # no vectors (None) unless the segmenter has the same encoder
        features = [parser_features(text, spans, self.subwords, name=text.id) for text, spans in zip(batch, edus)]
        tensors = ParserBatch.of(features).to(self.device)
        if token_vectors is None:
            token_vectors = self._encode(self.encoder, tensors.tokens.split(tensors.token_counts))  # [T, H] each
        parses = []
        for request, spans, charts in zip(batch, edus, self.charts(tensors, self.vectors(tensors, token_vectors))):
            tree = discourse_charts.document_tree(charts, self.reader.classes)  # nodes in EDUs, [E - 1, 5]
            half_width = min(self.band, len(spans) - 1)  # no two EDUs are farther apart
            ldd, gamma = document_ldd(charts, self.reader.classes, half_width, self.rows)  # gamma: importance of EDUs
            parses.append(DiscourseParse.of(request, spans, self.relations, tree, ldd, self.rows, gamma))
        return parses

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Parse one text, as `predict_step` does."""
        return self.predict_step([request])[0]

    def _encode(self, encoder: nn.Module, texts: Sequence[Tensor]) -> list[Tensor]:
        """Return the vectors of the tokens of texts, float32 [T, H] each, by an encoder run in `encoder_precision`."""
        # `cached`: low-rank changes (LoRA) are added to the weights once, not for each batch of windows of texts
        with self._autocast(), parametrize.cached():
            return [vectors.float() for vectors in encoder(texts)]

    def _autocast(self) -> AbstractContextManager:
        """Return the context of matrix products in `encoder_precision`; the encoder `small` always has float32."""
        if torch.is_autocast_enabled(self.device.type):  # by a trainer, whose precision remains
            return nullcontext()
        precision = self.encoder_precision
        if precision == "auto":
            precision = "bfloat16" if multiplies_bfloat16(self.device.type) else "float32"
        is_half = precision == "bfloat16" and self.subwords is not None
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_half)

    def _segment(self, batch: Sequence[ParseRequest]) -> tuple[list[list[tuple[int, int]]], list[Tensor] | None]:
        """Return the EDUs of each text, (start, end) in characters, and token vectors for the parser, [T, H], or None.

        The segmenter, loaded on first use, makes the EDUs of requests without EDUs. If its encoder equals the parser's,
        each text is encoded only once, for both; otherwise the parser has to encode the texts itself (None).
        """
        without_edus = [number for number, request in enumerate(batch) if request.edus is None]
        edus = [list(request.edus or ()) for request in batch]
        if not without_edus:
            return edus, None
        if self.segmenter is None:
            self.segmenter = load_default(self.settings["encoder"]).to(self.device)
        parser_vectors = segmenter_vectors = None  # None: the parser or the segmenter runs its encoder itself
        if self.subwords is not None and self.segmenter.subwords is not None:  # both encoders are pretrained
            columns = self.segmenter.columns_of(self)  # of `segmenter_vectors` that make the parser's; or None
            to_encode = [batch[number] for number in without_edus] if columns is None else batch
            ids = [torch.tensor(self.segmenter.subwords(request.text).ids, dtype=torch.long) for request in to_encode]
            segmenter_vectors = self._encode(self.segmenter.encoder, [text.to(self.device) for text in ids])
            if columns is not None:
                parser_vectors = [vectors[:, columns] for vectors in segmenter_vectors]
                segmenter_vectors = [segmenter_vectors[number] for number in without_edus]
        segmented = self.segmenter.segment([batch[number] for number in without_edus], segmenter_vectors)
        for number, spans in zip(without_edus, segmented):
            edus[number] = spans
        return edus, parser_vectors

    @property
    def fingerprint(self) -> str:
        """Digest of the weights and settings of parser and segmenter, for keys of caches, which add `rows` and `band`.

        `encoder_precision: auto` counts as one setting: devices with and without bfloat16 share cached parses.
        """
        if self._fingerprint is None:
            segmenter = self.segmenter or load_default(self.settings["encoder"])
            weights = self.state_to_keep()  # all but frozen ones
            if is_local(self.settings["encoder"]) or self.settings["tuned_by"]:  # a folder's content may change
                weights |= {f"encoder.{name}": value for name, value in self.encoder.state_dict().items()}
            options = self.cap, self.reader.decoding, self.min_prob, self.encoder_precision
            self._fingerprint = digest(weights, (VERSION, self.settings, *options), digest(segmenter.state_to_keep()))
        return self._fingerprint

    def _score(self, batch: ParserBatch, stage: str) -> None:
        """Update the Parseval metric of a stage (`val` or `test`) with the best trees over the gold EDUs of a batch."""
        charts = self.charts(batch, self._training_vectors(batch), with_nodes=False)  # best trees only
        for number in range(batch.batch_size):
            gold_nodes = batch.nodes[batch.nodes[:, 0] == number, 1:].tolist()  # [start, split, end, class] each
            gold = [(*edus, *self.classes[label]) for *edus, label in gold_nodes]
            nodes = discourse_charts.document_tree(charts[number], self.reader.classes).tolist()
            predicted = [(*edus, NUCLEARITIES[kind], self.relations[relation]) for *edus, kind, relation in nodes]
            self.metrics[stage].update(predicted, gold)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["parser"] = self.settings

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._fingerprint = None

    @classmethod
    def from_checkpoint(cls, path: Path | str, **options: Any) -> Self:
        """Load a parser from a checkpoint of `precis fit`, in eval mode; `options` replace stored settings, see `load`.

        Raises a `UserError` if the checkpoint is of another kind of model, or its weights do not fit.
        """
        checkpoint = read_checkpoint(Path(path))
        if "parser" not in checkpoint:  # settings that `on_save_checkpoint` adds
            raise UserError(f"{path}: no checkpoint of a discourse parser; give one of its runs")
        try:
            model = cls.of_settings(**checkpoint["parser"] | options)
            # not strict: weights of a frozen encoder are not in the checkpoint
            unknown = model.load_state_dict(checkpoint["state_dict"], strict=False).unexpected_keys
        except (TypeError, RuntimeError) as error:  # settings that do not exist, or weights of other shapes
            raise UserError(f"{path}: its weights do not fit ({' '.join(str(error).split())})") from None
        if unknown:  # weights of another version
            raise UserError(f"{path}: this version has no weights {unknown[0]}; train the parser again")
        return model.eval()


def layout_of(batch: ParserBatch) -> Layout:
    """Return the layout of a batch: sentence, paragraph and number of tokens of each EDU, EDUs of each text."""
    return Layout(batch.sentence, batch.paragraph, batch.edu_tokens, batch.sizes)
