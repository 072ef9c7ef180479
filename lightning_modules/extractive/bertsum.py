"""BertSum: Liu and Lapata, Text Summarization with Pretrained Encoders, EMNLP 2019 (arXiv 1908.08345)."""

from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.bertsum import ExtractiveBatch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.encoder_summarizer import EncoderSummarizer
from lightning_modules.extractive.names import Pooling, Scoring
from lightning_modules.extractive.selection import Relations, SelectionOptions
from lightning_modules.extractive.sentence_network import Encoding, ScoredSentences, SentenceNetwork
from lightning_modules.extractive.summary import ExtractiveSummary, extract
from lightning_modules.extractive.vector_cache import FROZEN_POOLINGS, VectorCache, pool_all
from lightning_modules.long_input import LongInput
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.passages import Reader
from lightning_modules.networks.transformer import Activation
from lightning_modules.schedules import Schedule
from lightning_modules.summarizer import evaluating

Loss = Literal["labels", "soft_labels"]


class BertSum(EncoderSummarizer):
    """Sentences scored over a Transformer encoder; the best ones are the summary.

    The model of the paper has `pooling: cls`, `scoring: classifier`, `inter_layers: 2`, `loss: labels`, and
    `trigram_blocking` of 3 sentences; its TransformerExt has `encoder: null`.

    Loss term: `extraction`, the mean over documents of one of

    - `labels`: binary cross-entropy with the labels of the oracle, averaged over sentences (the paper's);
    - `soft_labels`: cross-entropy of the softmax over the sentences with softmax(g_i / temperature), where g_i is
      (ROUGE-1 F + ROUGE-2 F) / 2 of sentence i alone.

    Args:
        vocab_size: size of the vocabulary; with `encoder` at least that of its tokenizer.
        encoder: `minilm` (the optional package), Hugging Face name or folder of a pretrained encoder; null for an
            encoder without pre-training, configured by the next three arguments.
        hidden_size: H of that encoder.
        heads: its number of attention heads.
        layers: its number of layers; the inner width is 4 H.
        frozen_encoder: whether a pretrained encoder stays as it is. The vectors of sentences are then computed once and
            kept in the cache folder of the data, so that further training runs on the same documents take a minute;
            `pooling` is `cls`, `mean` or `max`.
        encoding: `joint` encodes the whole document, so that sentences attend to each other; `separate` encodes the
            document and each sentence separately.
        long_input: how a pretrained encoder reads documents beyond its input limit: in overlapping `windows`, with
            copies of its last position (`extend`, the paper's), or not at all (`truncate`, at `data.max_source`).
        positions: number of positions with `extend`; longer documents are read in windows of as many tokens.
        pooling: `cls`, `mean`, `max` or `self_attention`.
        scoring: `classifier`, `document_cosine` or `centrality`.
        inter_layers: number of inter-sentence Transformer layers; 0 for `document_cosine`.
        inter_heads: their number of attention heads.
        inter_size: their inner width.
        activation: activation of their feed-forward networks; PreSumm has `gelu_tanh`.
        first_norm: whether the first of these layers normalizes its input, as the others do; PreSumm's does not.
        interval_segments: whether segment embeddings alternate between sentences.
        dropout: dropout of all layers, except for a pretrained encoder with its own setting.
        attention_dropout: dropout of attention weights of a pretrained encoder.
        loss: see above.
        temperature: temperature of `soft_labels`.
        selection: options of sentence selection.
        encoder_learning_rate: peak learning rate of a pretrained encoder.
        learning_rate: peak learning rate of other parameters.
        schedule: `linear`, `inverse_root` (the paper's) or `constant`, each after a warm-up.
        warm_up: number of warm-up steps, or a fraction of all steps if below 1.
        weight_decay: weight decay of AdamW.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.

    Raises:
        ValueError: if a size is not a multiple of the heads, or an option has an invalid value.
    """

    batch_type = ExtractiveBatch
    validation_names = ("extraction",)

    def __init__(
        self,
        vocab_size: int = 30_522,
        encoder: str | None = "minilm",
        hidden_size: int = 256,
        heads: int = 8,
        layers: int = 6,
        frozen_encoder: bool = False,
        encoding: Encoding = "joint",
        long_input: LongInput = "windows",
        positions: int = 1024,
        pooling: Pooling = "cls",
        scoring: Scoring = "classifier",
        inter_layers: int = 2,
        inter_heads: int = 8,
        inter_size: int = 2048,
        activation: Activation = "relu",
        first_norm: bool = True,
        interval_segments: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        loss: Loss = "labels",
        temperature: float = 0.1,
        selection: SelectionOptions | None = None,
        encoder_learning_rate: float = 5e-5,
        learning_rate: float = 5e-4,
        schedule: Schedule = "linear",
        warm_up: float = 0.1,
        weight_decay: float = 0.01,
        val_summaries: int = -1,
    ) -> None:
        super().__init__(vocab_size, DecodingOptions(), val_summaries)
        if temperature <= 0:
            raise ValueError(f"model.temperature must be positive, got {temperature}")
        if frozen_encoder and (encoder is None or pooling not in FROZEN_POOLINGS):
            raise ValueError(
                f"model.frozen_encoder: encoder {encoder!r} with pooling {pooling!r} has weights to train; name a"
                " pretrained encoder and take cls, mean or max"
            )
        self.loss, self.temperature = loss, temperature
        self.selection = selection or SelectionOptions()
        self.set_rates(encoder, encoder_learning_rate, learning_rate, schedule, warm_up, weight_decay)
        self.long_input = long_input
        extended = positions if long_input == "extend" else 0
        self.network = SentenceNetwork(
            reader=self.make_reader(encoder, hidden_size, heads, layers, dropout, attention_dropout, extended),
            encoding=encoding,
            pooling=pooling,
            scoring=scoring,
            layers=inter_layers,
            heads=inter_heads,
            feed_forward=inter_size,
            dropout=dropout,
            interval_segments=interval_segments,
            activation=activation,
            first_norm=first_norm,
        )
        self.frozen_encoder = frozen_encoder
        self._cache: dict[bool, VectorCache] = {}  # without and with vectors of documents
        if frozen_encoder:
            self.reader.requires_grad_(False)
            self.train(self.training)

    @property
    def reader(self) -> Reader:
        """The encoder."""
        return self.network.reader

    # Training ----------------------------------------------------------------------------------------------------

    def score(self, batch: ExtractiveBatch, with_document: bool = False) -> ScoredSentences:
        """Return logits and vectors of the sentences of a batch."""
        if self.frozen_encoder:
            return self.network.scored(*self._frozen_vectors(batch, with_document), batch.mask)
        return self.network(
            batch.tokens, batch.lengths, batch.owner, batch.heads, batch.starts, batch.mask, with_document
        )

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.frozen_encoder:
            self.reader.eval()
        return self

    @torch.no_grad()
    def _frozen_vectors(self, batch: ExtractiveBatch, with_document: bool) -> tuple[Tensor, Tensor]:
        """Return the vectors of sentences [B, L, H] and documents [B, H]; each document is encoded only once."""
        network = self.network
        # joint encoding gives vectors of documents at no cost, so that there is one file
        with_document |= network.encoding == "joint" or network.scorer.kind == "document_cosine"
        if with_document not in self._cache:
            settings = (network.encoding, network.interval_segments, with_document)
            folder = getattr(getattr(self._trainer, "datamodule", None), "cache_dir", None)
            self._cache[with_document] = VectorCache(self.reader.state_dict(), *settings, folder=folder)

        def compute() -> Tensor:
            # vectors that are kept are those of full precision, whatever the run's is
            with torch.autocast(batch.tokens.device.type, enabled=False):
                states, whole = network.encoded(batch.tokens, batch.lengths, batch.owner, batch.starts, with_document)
            return pool_all(states, whole, batch.owner, batch.heads, batch.mask.shape[1])

        rows = self._cache[with_document].vectors(batch.sentences, batch.starts, compute)      # [B, 1 + L, P, H]
        weights = next(network.parameters())
        rows = rows[:, :, FROZEN_POOLINGS.index(network.pooler.kind)].to(weights.device, weights.dtype)
        return rows[:, 1:], rows[:, 0]

    def _save_vectors(self) -> None:
        for cache in self._cache.values():
            cache.save()

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        self._save_vectors()

    def on_validation_end(self) -> None:
        super().on_validation_end()
        self._save_vectors()

    def loss_terms(self, batch: ExtractiveBatch) -> dict[str, Tensor]:
        """Return `extraction`: the mean over the sentences that may be selected, then over the documents."""
        return {"extraction": self.extraction_loss(upcast_half(self.score(batch).logits), batch)}

    def extraction_loss(self, logits: Tensor, batch: ExtractiveBatch) -> Tensor:
        """Return the loss of logits [B, L], see the class."""
        real = batch.candidates
        if self.loss == "labels":
            each = F.binary_cross_entropy_with_logits(logits, batch.labels.to(logits), reduction="none")
            return (each.masked_fill(~real, 0).sum(1) / real.sum(1).clamp_min(1)).mean()
        # a large negative number, not -inf: a document without a sentence has a finite loss
        log_probs = logits.masked_fill(~real, -1e4).log_softmax(1)
        target = (batch.gains.to(logits) / self.temperature).masked_fill(~real, -1e4).softmax(1)
        return -(target * log_probs).masked_fill(~real, 0).sum(1).mean()

    # Summaries ---------------------------------------------------------------------------------------------------

    def relations(self, scored: ScoredSentences, batch: ExtractiveBatch) -> Relations | None:
        """Return the relations between sentences that the selector needs."""
        if self.selection.selector == "top_k":
            return None
        return Relations(scored.similarity(), scored.to_document(), batch.shared)

    def sentence_scores(self, batch: ExtractiveBatch) -> list[list[float]]:
        """Return the scores of all sentences of a batch, each in [0, 1]."""
        with evaluating(self):
            scores = upcast_half(self.score(batch).logits).sigmoid().tolist()
        return [row[: len(sentences)] for row, sentences in zip(scores, batch.sentences)]

    def summarize(self, batch: ExtractiveBatch) -> list[ExtractiveSummary]:
        """Return the selected sentences of each document; an empty summary for a document without sentences."""
        with evaluating(self):
            scored = self.score(batch, with_document=self.selection.selector == "triangle")
            scores, relations = upcast_half(scored.logits).sigmoid(), self.relations(scored, batch)
        return extract(
            batch.ids, batch.references, batch.sentences, scores, batch.candidates, relations, self.selection
        )

    def sentence_attention(self, batch: ExtractiveBatch) -> list[np.ndarray]:
        """Return the attention between sentences in the last inter-sentence layer, [L, L] each; none without layers."""
        with evaluating(self):
            weights = self.network.attention(self.score(batch).vectors, batch.mask)
        if weights is None:
            return []
        sizes = map(len, batch.sentences)
        return [rows[:size, :size].float().cpu().numpy() for rows, size in zip(weights, sizes)]
