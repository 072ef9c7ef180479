"""BertSum: Liu and Lapata, Text Summarization with Pretrained Encoders, EMNLP 2019 (arXiv 1908.08345)."""

from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.bertsum import ExtractiveBatch
from datamodules.text.subwords import is_local
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.encoder_summarizer import EncoderSummarizer
from lightning_modules.extractive import sentence_network
from lightning_modules.extractive.names import Pooling, Scoring
from lightning_modules.extractive.scoring import cosines, document_cosine
from lightning_modules.extractive.selection import Relations, SelectionOptions
from lightning_modules.extractive.sentence_network import Encoding, InterSentenceOptions, ScoredSentences
from lightning_modules.extractive.summary import ExtractiveSummary, extract
from lightning_modules.extractive.vector_cache import FROZEN_POOLINGS, VectorCache, pool_all
from lightning_modules.lightning_internals import trainer_of
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.passages import Reader
from lightning_modules.options import EncoderAdamWOptions, SentenceEncoderOptions
from lightning_modules.summarizer import evaluating

Loss = Literal["labels", "soft_labels"]


class BertSum(EncoderSummarizer):
    """BertSum: sentences are scored by a network over a Transformer encoder; the best ones are the summary.

    The model of the paper has `pooling: cls`, `scoring: classifier`, `inter_sentence.layers: 2`, `loss: labels`, and
    `trigram_blocking` of 3 sentences; its TransformerExt has `encoder.checkpoint: null`.

    Loss term: `extraction`, the mean over documents and stacks of layers (`inter_sentence.members`) of one of

    - `labels`: binary cross-entropy with the labels of the oracle, averaged over sentences (the paper's);
    - `soft_labels`: cross-entropy of the softmax over the sentences with softmax(g_i / temperature), where g_i is
      (ROUGE-1 F + ROUGE-2 F) / 2 of sentence i alone.

    Args:
        vocab_size: size of the vocabulary; with a pretrained encoder at least that of its tokenizer.
        encoder: encoder, see `SentenceEncoderOptions`.
        encoding: `joint` encodes the whole document, so that sentences attend to each other; `separate` encodes the
            document and each sentence separately.
        pooling: `cls`, `mean`, `max` or `self_attention`.
        scoring: `classifier`, `document_cosine` or `centrality`.
        inter_sentence: Transformer layers between pooling and scoring, see `InterSentenceOptions`.
        dropout: dropout of all layers; attention weights of a pretrained encoder have `encoder.attention_dropout`.
        loss: see above.
        temperature: temperature of `soft_labels`.
        selection: options of sentence selection.
        optimizer: options of AdamW; the paper has the schedule `inverse_root`.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = ExtractiveBatch
    validation_names = ("extraction",)

    def __init__(
        self,
        vocab_size: int = 30_522,
        encoder: SentenceEncoderOptions = SentenceEncoderOptions(),
        encoding: Encoding = "joint",
        pooling: Pooling = "cls",
        scoring: Scoring = "classifier",
        inter_sentence: InterSentenceOptions = InterSentenceOptions(),
        dropout: float = 0.1,
        loss: Loss = "labels",
        temperature: float = 0.1,
        selection: SelectionOptions | None = None,
        optimizer: EncoderAdamWOptions = EncoderAdamWOptions(),
        val_summaries: int = -1,
    ) -> None:
        super().__init__(vocab_size, DecodingOptions(), val_summaries)  # nothing is decoded
        if temperature <= 0:
            raise ValueError(f"model.temperature must be positive, got {temperature}")
        if encoder.frozen and (encoder.checkpoint is None or pooling not in FROZEN_POOLINGS):
            raise ValueError(
                f"model.encoder.frozen: encoder {encoder.checkpoint!r} with pooling {pooling!r} has weights to train; "
                "name a pretrained encoder and take cls, mean or max"
            )
        self.loss = loss
        self.temperature = temperature
        self.selection = selection or SelectionOptions()
        self.network = sentence_network.SentenceNetwork(
            reader=self.make_reader(encoder, dropout, optimizer), encoding=encoding, pooling=pooling, scoring=scoring,
            between=inter_sentence, dropout=dropout, interval_segments=encoder.interval_segments,
        )  # fmt: skip
        self.frozen = encoder.frozen
        self.checkpoint = encoder.checkpoint
        self._cache: dict[bool, VectorCache] = {}  # key: whether vectors of documents are cached, too
        if self.frozen:
            self.reader.requires_grad_(False)
            self.train(self.training)  # the override of `train` sets the encoder to eval mode

    @property
    def reader(self) -> Reader:
        """The encoder of tokens."""
        return self.network.reader

    def frozen_weights(self) -> set[str]:
        """Return the names of weights that exports can omit: a frozen encoder's, unless it is from a local folder."""
        if not self.frozen or is_local(self.checkpoint):
            return set()
        return {name for name in self.state_dict() if name.startswith("network.reader.")}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the weights of a frozen encoder to a checkpoint that is a compact export, which lacks them."""
        state = self.state_dict()
        loaded = {name: state[name] for name in self.frozen_weights()}
        checkpoint["state_dict"] = {**loaded, **checkpoint["state_dict"]}
        super().on_load_checkpoint(checkpoint)

    def score(self, batch: ExtractiveBatch, with_document: bool = False) -> ScoredSentences:
        """Return scores of sentences, with vectors of documents if scorer or caller (`with_document`) needs them."""
        if self.frozen:
            return self.network.scored(*self._frozen_vectors(batch, with_document), batch.mask, batch.layout)
        return self.network(  # `owner`: sentence of each token; `heads`: whether it is the [CLS] of a sentence or piece
            batch.tokens, batch.lengths, batch.owner, batch.heads, batch.starts, batch.mask, with_document, batch.layout
        )

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen encoder stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.reader.eval()
        return self

    @torch.no_grad()
    def _frozen_vectors(self, batch: ExtractiveBatch, with_document: bool) -> tuple[Tensor, Tensor]:
        """Return the cached vectors of sentences [B, L, H] and documents [B, H]; the latter are 0 unless needed."""
        network = self.network
        # joint encoding gives vectors of documents at no cost, so it always caches them, in one file for all callers
        with_document |= network.encoding == "joint" or network.scorer.kind == "document_cosine"
        if with_document not in self._cache:
            settings = (network.encoding, network.interval_segments, with_document)  # the file's name depends on these
            # None outside of a trainer, or if the DataModule has no such folder: vectors are then cached in memory only
            folder = getattr(getattr(trainer_of(self), "datamodule", None), "cache_dir", None)
            self._cache[with_document] = VectorCache(self.reader.state_dict(), *settings, folder=folder)

        def compute() -> Tensor:
            # in full precision, even if a run has mixed precision, so that all runs can share the file
            with torch.autocast(batch.tokens.device.type, enabled=False):
                both = network.encoded(batch.tokens, batch.lengths, batch.owner, batch.starts, with_document)
            # states of tokens for vectors of sentences, and for vectors of documents (None without), [B, T, H] each
            return pool_all(*both, batch.owner, batch.heads, batch.mask.shape[1])  # `owner`: token's sentence

        # the document comes first, then its sentences, each pooled in P ways (`FROZEN_POOLINGS`): [B, 1 + L, P, H]
        pooled = self._cache[with_document].vectors(batch.sentences, batch.starts, compute)
        parameter = next(network.parameters())
        vectors = pooled[:, :, FROZEN_POOLINGS.index(network.pooler.kind)].to(parameter.device, parameter.dtype)
        return vectors[:, 1:], vectors[:, 0]

    def _save_vectors(self) -> None:
        """Write new vectors of a frozen encoder to the cache folder, after each training epoch and validation."""
        for cache in self._cache.values():
            cache.save()

    on_train_epoch_end = on_validation_end = _save_vectors

    def loss_terms(self, batch: ExtractiveBatch) -> dict[str, Tensor]:
        """Return the loss `extraction`, averaged over candidate sentences, documents, and members of the network."""
        members = upcast_half(self.score(batch).members)  # logits of M members, in float32, [M, B, L]
        return {"extraction": torch.stack([self.extraction_loss(logits, batch) for logits in members]).mean()}

    def extraction_loss(self, logits: Tensor, batch: ExtractiveBatch) -> Tensor:
        """Return the loss of logits [B, L], a mean over documents: `labels` or `soft_labels`, see the class."""
        candidates = batch.candidates  # True at sentences that may be selected, [B, L]
        if self.loss == "labels":
            losses = F.binary_cross_entropy_with_logits(logits, batch.labels.to(logits), reduction="none")
            return (losses.masked_fill(~candidates, 0).sum(1) / candidates.sum(1).clamp_min(1)).mean()
        # -1e4 rather than -inf, which would make the loss of a document without candidates NaN
        log_probs = logits.masked_fill(~candidates, -1e4).log_softmax(1)
        target = (batch.gains.to(logits) / self.temperature).masked_fill(~candidates, -1e4).softmax(1)
        return -(target * log_probs).masked_fill(~candidates, 0).sum(1).mean()  # 0 without candidates

    def relations(self, scored: ScoredSentences, batch: ExtractiveBatch) -> Relations | None:
        """Return similarities and shared trigrams of sentences for the selector; None for `top_k`, which needs none."""
        if self.selection.selector == "top_k":
            return None
        similarity = cosines(scored.vectors, scored.vectors)
        return Relations(similarity, document_cosine(scored.vectors, scored.document), batch.shared)

    def sentence_scores(self, batch: ExtractiveBatch) -> list[list[float]]:
        """Return the scores of all sentences of a batch, each in [0, 1]."""
        with evaluating(self):
            scores = upcast_half(self.score(batch).logits).sigmoid().tolist()
        # without padding
        return [document[: len(sentences)] for document, sentences in zip(scores, batch.sentences)]

    def summarize(self, batch: ExtractiveBatch) -> list[ExtractiveSummary]:
        """Return the selected sentences of each document; an empty summary for a document without sentences."""
        with evaluating(self):
            # only the selector `triangle` reads similarities of sentences to their document
            scored = self.score(batch, with_document=self.selection.selector == "triangle")
            scores = upcast_half(scored.logits).sigmoid()                                      # [B, L]
            relations = self.relations(scored, batch)
        documents = batch.ids, batch.references, batch.sentences
        return extract(*documents, scores, batch.candidates, relations, self.selection)

    def sentence_attention(self, batch: ExtractiveBatch) -> list[np.ndarray]:
        """Return documents' attention [L, L] in the last inter-sentence layer (first stack), mean over heads, or []."""
        with evaluating(self):
            weights = self.network.attention(self.score(batch).vectors, batch.mask, batch.layout)
        if weights is None:
            return []
        sizes = map(len, batch.sentences)  # without padding
        return [attention[:size, :size].float().cpu().numpy() for attention, size in zip(weights, sizes)]
