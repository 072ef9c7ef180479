"""Network from tokens to vectors and scores of sentences (Liu and Lapata, EMNLP 2019, arXiv 1908.08345)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.extractive.layout import LayoutEmbedding, lead_prior
from lightning_modules.extractive.names import Pooling, Scoring
from lightning_modules.extractive.scoring import Pooler, SentenceScorer, pool_texts
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.passages import Reader, attention_mask, encode_documents, sections
from lightning_modules.networks.transformer import Activation, EncoderLayer, sinusoidal

Encoding = Literal["joint", "separate"]


@dataclass(frozen=True)
class InterSentenceOptions:
    """Transformer layers over the vectors of sentences."""

    layers: int = 2
    """Number of layers; always 0 with `scoring: document_cosine`, which compares pooled vectors."""
    heads: int = 8
    """Number of attention heads."""
    inner_size: int = 2048
    """Width inside the feed-forward networks."""
    activation: Activation = "relu"
    """Activation of the feed-forward networks; PreSumm has `gelu_tanh`."""
    first_norm: bool = True
    """Whether the first layer normalizes its input, as the other layers do; PreSumm's does not."""
    width: int = 0
    """Width of the layers, to which sentence vectors are projected; 0 for the width of the encoder."""
    layout: bool = False
    """Let the layers see where sentences stand, how long they are, whether they are prose and how near to the topic
    (`layout.LayoutEmbedding`), in place of position embeddings."""
    ranks: bool = False
    """Add the TextRank and LexRank of each sentence to the features of `layout`, which it needs."""
    lead_prior: float = 0.0
    """Strength of `layout.lead_prior` (favors the beginning) in logits of summaries, not the loss; needs `layout`."""
    members: int = 1
    """Number of stacks of layers, each with its own scorer and loss; summaries are selected by their mean logits."""


class ScoredSentences(NamedTuple):
    """Output of the network for a batch of B documents of up to L sentences."""

    logits: Tensor  # mean over the M members, plus a prior for the beginning if wanted (`lead_prior`), [B, L]
    vectors: Tensor  # pooled vectors of sentences, [B, L, H]
    document: Tensor  # vectors of documents, [B, H]
    members: Tensor  # logits of each member for the loss, [M, B, L]


class InterSentenceScorer(nn.Module):
    """Transformer layers between sentences (options `between`), then a scorer, for vectors of H = `vector_size`."""

    def __init__(self, vector_size: int, scoring: Scoring, between: InterSentenceOptions, dropout: float) -> None:
        super().__init__()
        num_layers = 0 if scoring == "document_cosine" else between.layers  # it compares pooled vectors
        size = between.width if num_layers and between.width else vector_size
        self.scorer = SentenceScorer(scoring, size)
        self.layers = nn.ModuleList(
            EncoderLayer(size, between.heads, between.inner_size, dropout, activation=between.activation)
            for _ in range(num_layers)
        )
        if num_layers and not between.first_norm:
            self.layers[0].around_attention.norm = nn.Identity()  # its input is not normalized, as in PreSumm
        self.norm = nn.LayerNorm(size) if num_layers else None  # layers do not normalize their output
        if num_layers and between.width:
            self.project: nn.Module = nn.Sequential(nn.Linear(vector_size, size), Dropout(dropout))
        else:
            self.project = nn.Identity()
        self.layout = LayoutEmbedding(size, between.ranks) if num_layers and between.layout else None

    def between(self, vectors: Tensor, mask: Tensor, features: Tensor | None = None) -> Tensor:
        """Apply layers between sentences, [B, L, H] -> [B, L, D]; `features`: `layout_features` [B, L, 13] or None."""
        if self.norm is None:  # there are no layers
            return vectors
        x = self.before_last(vectors, mask, features)                                        # [B, L, D]
        return self.norm(self.layers[-1](x, attention_mask(mask)))

    def before_last(self, vectors: Tensor, mask: Tensor, features: Tensor | None) -> Tensor:
        """Project vectors, embed layout or positions, and apply all layers but the last: [B, L, H] -> [B, L, D]."""
        x = self.project(vectors)
        if self.layout is not None:
            x = x + self.layout(features, vectors, mask)
        else:
            x = x + sinusoidal(x.shape[1], x.shape[2], x.device).to(x.dtype)
        for layer in self.layers[:-1]:
            x = layer(x, attention_mask(mask))
        return x

    def attention(self, vectors: Tensor, mask: Tensor, features: Tensor | None = None) -> Tensor | None:
        """Return the attention between sentences in the last layer, mean over heads, [B, L, L]; None without layers."""
        if self.norm is None:
            return None
        x = self.before_last(vectors, mask, features)                                        # [B, L, D]
        last = self.layers[-1]
        x = last.around_attention.norm(x)  # pre-normalization: attention reads normalized vectors
        return last.attention.weights(x, x, attention_mask(mask)).mean(1)


class SentenceNetwork(InterSentenceScorer):
    """Encoder, pooler, and one or several members, which are inter-sentence layers with a scorer each.

    The network itself is the first member, so that its weights have the same names whether there are others or not.
    The encoding `joint` encodes the whole document in one pass, so that sentences attend to each other; `separate`
    encodes each sentence separately, and the document in another pass if a scorer or selector needs its vector. With
    `interval_segments`, segment embeddings of sentences alternate (E_A, E_B, E_A, ..). Other arguments: see `BertSum`.
    """

    def __init__(
        self,
        reader: Reader,
        encoding: Encoding,
        pooling: Pooling,
        scoring: Scoring,
        between: InterSentenceOptions,
        dropout: float,
        interval_segments: bool,
    ) -> None:
        super().__init__(reader.size, scoring, between, dropout)
        if encoding not in ("joint", "separate"):
            raise ValueError(f"encoding must be joint or separate, got {encoding!r}")
        self.reader = reader
        self.encoding = encoding
        self.interval_segments = interval_segments
        self.pooler = Pooler(pooling, reader.size)
        self.lead_prior = between.lead_prior  # strength of the prior for the beginning
        for name in ("lead_prior", "ranks"):  # options that read the features of `layout`
            if getattr(between, name) and self.layout is None:  # set by the base class
                raise ValueError(f"inter_sentence.{name} needs inter_sentence.layout: true")
        if between.members < 1:
            raise ValueError(f"inter_sentence.members must be at least 1, got {between.members}")
        other_members = range(between.members - 1)  # besides this network
        self.others = nn.ModuleList(InterSentenceScorer(reader.size, scoring, between, dropout) for _ in other_members)

    def states(self, tokens: Tensor, lengths: Tensor, owner: Tensor, starts: Sequence[Sequence[int]] | None) -> Tensor:
        """Return the hidden states of all tokens, [B, T, H], of documents with `lengths` tokens, [B] on the CPU.

        With `starts`, the first token of each piece of a sentence in each document, pieces are encoded separately, else
        whole documents, long ones in windows. `owner` is the index of each token's sentence, -1 for none, [B, T].
        """
        segments = owner.clamp_min(0) % 2 if self.interval_segments else None  # E_A or E_B, [B, T]
        if starts is not None:
            passages = sections(lengths.tolist(), starts)  # one passage for each piece
            limit = self.reader.max_tokens
            longest = max((passage.size for passage in passages), default=0)
            if limit is not None and longest > limit:
                raise ValueError(f"a piece of {longest} tokens, the encoder reads {limit}: lower data.piece")
            return self.reader.encode_passages(tokens, passages, segments)
        return encode_documents(self.reader, tokens, lengths, segments)

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        owner: Tensor,
        heads: Tensor,
        starts: Sequence[Sequence[int]],
        mask: Tensor,
        with_document: bool = False,
        features: Tensor | None = None,
    ) -> ScoredSentences:
        """Return the scores of sentences; arguments as in `ExtractiveBatch` (`heads`: at [CLS]; `features`: `layout`).

        The encoding `separate` needs another pass for vectors of documents, so they are zeros unless the scorer needs
        them, or the caller does (`with_document`).
        """
        states, document_states = self.encoded(tokens, lengths, owner, starts, with_document)
        vectors = self.pooler(states, owner, heads, mask.shape[1])  # `owner`: each token's sentence; [B, L, H]
        if document_states is None:  # neither scorer nor caller needs vectors of documents
            document = torch.zeros_like(vectors[:, 0])                                       # [B, H]
        else:
            document = pool_texts(self.pooler, document_states, owner >= 0)
        return self.scored(vectors, document, mask, features)

    def encoded(
        self,
        tokens: Tensor,
        lengths: Tensor,
        owner: Tensor,
        starts: Sequence[Sequence[int]],
        with_document: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the states of tokens for vectors of sentences, and for vectors of documents, [B, T, H]; see `states`.

        With `joint` both are equal. With `separate` the second is None if neither caller nor scorer needs it.
        """
        if self.encoding == "joint":
            states = self.states(tokens, lengths, owner, None)
            return states, states
        states = self.states(tokens, lengths, owner, starts)
        if with_document or self.scorer.kind == "document_cosine":
            return states, self.states(tokens, lengths, owner, None)
        return states, None

    def scored(
        self, vectors: Tensor, document: Tensor, mask: Tensor, features: Tensor | None = None
    ) -> ScoredSentences:
        """Return scores of sentences from pooled vectors of sentences [B, L, H] and documents [B, H]; see `forward`."""
        member_logits = []  # [B, L] each
        for member in (self, *self.others):
            member_logits.append(member.scorer(member.between(vectors, mask, features), document, mask))
        members = torch.stack(member_logits)                                                 # [M, B, L]
        logits = members.mean(0)                                                             # [B, L]
        if self.lead_prior:
            logits = logits + lead_prior(features, vectors, mask, self.lead_prior)  # favors early ones
        return ScoredSentences(logits, vectors, document, members)  # the loss reads `members`, without the prior
