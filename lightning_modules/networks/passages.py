"""Encoders of token ids, pretrained or from scratch, over documents that are longer than what they read at once."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.networks.text_encoder import plan_windows, positions
from lightning_modules.networks.transformer import EncoderLayer, never_empty, sinusoidal

Reach = Literal["windows", "extend"]
_CHUNK = 16_384  # tokens, padding included, that are encoded together where documents are cut into passages


class Passage(NamedTuple):
    """What is read at once: tokens start to start + size of a document, of which those from `first` to before `last`
    get their vectors here."""

    document: int
    start: int
    size: int
    first: int
    last: int


def windows(lengths: Sequence[int], room: int) -> list[Passage]:
    """Windows of at most `room` tokens that overlap by half; a token is the nearest window's, see `plan_windows`."""
    found = []
    for document, length in enumerate(lengths):
        plan = plan_windows(length, room)
        counts = torch.bincount(plan.window, minlength=len(plan.starts)).tolist()
        first = 0
        for start, count in zip(plan.starts.tolist(), counts):
            found.append(Passage(document, start, plan.size, first, first + count))
            first += count
    return found


def sections(lengths: Sequence[int], starts: Sequence[Sequence[int]]) -> list[Passage]:
    """Passages between given starts, such as sentences, each on its own."""
    found = []
    for document, (length, begins) in enumerate(zip(lengths, starts)):
        for start, end in zip(begins, [*begins[1:], length]):
            found.append(Passage(document, start, end - start, start, end))
    return found


class Reader(nn.Module):
    """States of token ids, from a pretrained encoder or a Transformer from scratch.

    Args:
        model: of Transformers, called with `input_ids`, `attention_mask` and, where it has them, `token_type_ids`; or
            `ScratchEncoder`.
        size: H, width of its states.
        room: tokens that it reads at once, None without a limit.
        segments: how many kinds of segments it knows.
    """

    def __init__(self, model: nn.Module, size: int, room: int | None, segments: int) -> None:
        super().__init__()
        self.model, self.size, self.room, self.segments = model, size, room, segments

    @classmethod
    def pretrained(
        cls, name: str, dropout: float | None = None, attention_dropout: float | None = None, extend: int = 0
    ) -> "Reader":
        """A pretrained encoder by its Hugging Face name (downloaded if it is not there) or from a folder.

        Args:
            dropout: of hidden states; the checkpoint's if not given.
            attention_dropout: the same of attention weights.
            extend: positions that there are to be; those that lack copy the last one, as Liu and Lapata 2019 do.
        """
        from transformers import AutoConfig, AutoModel  # takes seconds to load
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        config = AutoConfig.from_pretrained(name)
        for names, value in (
            (("hidden_dropout_prob", "dropout"), dropout),
            (("attention_probs_dropout_prob", "attention_dropout"), attention_dropout),
        ):
            for option in names:
                if value is not None and hasattr(config, option):
                    setattr(config, option, value)
        model = AutoModel.from_pretrained(name, config=config, dtype=torch.float32)
        model = model.get_encoder() if config.is_encoder_decoder else model
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # nothing reads it, so nothing would train it
        room = positions(config)
        if room is not None and extend > room:
            extend_positions(model, extend - room)
            room = extend
        model.train()  # Transformers hands it out in eval mode, and Lightning leaves modes as they are
        return cls(model, config.hidden_size, room, getattr(config, "type_vocab_size", 0) or 0)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """[B, T] -> [B, T, H].

        Args:
            ids: tokens.
            mask: True at tokens, [B, T].
            segments: 0 or 1 a token, [B, T]; not used by encoders that know no segments.
        """
        if isinstance(self.model, ScratchEncoder):
            return self.model(ids, mask, segments)
        kinds = {"token_type_ids": segments} if segments is not None and self.segments > 1 else {}
        return self.model(input_ids=ids, attention_mask=mask.long(), **kinds).last_hidden_state

    def read(
        self, ids: Tensor, passages: Sequence[Passage], segments: Tensor | None = None, chunk: int = _CHUNK
    ) -> Tensor:
        """States of documents that are read passage by passage.

        Args:
            ids: tokens, [B, T].
            passages: which together own each token at most once.
            segments: as in `forward`.
            chunk: tokens that are encoded together, padding included, or one passage.

        Returns:
            [B, T, H]; zeros at tokens that no passage owns.
        """
        B, T = ids.shape
        flat, kinds = ids.flatten(), None if segments is None else segments.flatten()
        parts, places = [], []
        for group in _chunks(passages, chunk):
            width = max(passage.size for passage in group)
            rows = torch.tensor([passage.document * T + passage.start for passage in group])
            sizes = torch.tensor([passage.size for passage in group])
            reach = torch.arange(width)
            mask = reach < sizes[:, None]                                                    # [N, P]
            index = (rows[:, None] + reach).clamp_max(B * T - 1).to(ids.device)              # [N, P]
            states = self(flat[index], mask.to(ids.device), None if kinds is None else kinds[index])
            own = reach + torch.tensor([p.start for p in group])[:, None]
            own = (own >= torch.tensor([p.first for p in group])[:, None]) & (
                own < torch.tensor([p.last for p in group])[:, None]
            )
            where = own.flatten().nonzero().squeeze(1).to(ids.device)                        # [M]
            parts.append(states.flatten(0, 1)[where])
            places.append(index.flatten()[where])
        if not parts:
            return torch.zeros(B, T, self.size, device=ids.device)
        vectors = torch.cat(parts)
        return vectors.new_zeros(B * T, self.size).index_copy(0, torch.cat(places), vectors).view(B, T, -1)


def _chunks(passages: Sequence[Passage], most: int) -> list[list[Passage]]:
    """Passages of like size together, at most so many tokens with their padding."""
    groups: list[list[Passage]] = []
    for passage in sorted(passages, key=lambda p: -p.size):
        if groups and (len(groups[-1]) + 1) * groups[-1][0].size <= most:
            groups[-1].append(passage)
        else:
            groups.append([passage])
    return groups


def extend_positions(model: nn.Module, more: int) -> None:
    """Adds learned positions to a Transformers model, each a copy of the last one.

    Raises:
        ValueError: if the model has no table of absolute positions.
    """
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, nn.Embedding):
            break
    else:
        raise ValueError(f"{type(model).__name__} has no table of positions to extend; read it in windows")
    weight = torch.cat([table.weight.data, table.weight.data[-1:].repeat(more, 1)])
    padding = table.padding_idx
    module.position_embeddings = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=padding)
    model.config.max_position_embeddings = len(weight)
    for name, buffer in dict(module.named_buffers(recurse=False)).items():
        if name == "position_ids":
            module.register_buffer(name, torch.arange(len(weight)).unsqueeze(0), persistent=False)
        elif name == "token_type_ids":
            module.register_buffer(name, buffer.new_zeros(1, len(weight)), persistent=False)


class ScratchEncoder(nn.Module):
    """A Transformer encoder with sinusoidal positions: no limit of length.

    Args:
        vocab_size: V.
        size: H.
        heads: attention heads.
        layers: how many.
        feed_forward: width inside their feed-forward networks.
        dropout: everywhere.
        kinds: of segments.
    """

    def __init__(
        self, vocab_size: int, size: int, heads: int, layers: int, feed_forward: int, dropout: float, kinds: int = 2
    ) -> None:
        super().__init__()
        self.embedding, self.kinds = nn.Embedding(vocab_size, size), nn.Embedding(kinds, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)
        nn.init.normal_(self.kinds.weight, std=size**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(size, heads, feed_forward, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """[B, T] -> [B, T, H]; mask True at tokens, segments 0 or 1."""
        kinds = self.kinds.weight[0] if segments is None else self.kinds(segments)
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5 + kinds
        x = self.dropout(x + sinusoidal(ids.shape[1], x.shape[-1], ids.device).to(x.dtype))  # [B, T, H]
        seen = visible(mask)
        for layer in self.layers:
            x = layer(x, seen)
        return self.norm(x)


def visible(mask: Tensor) -> Tensor:
    """What attention may look at, [B, T] -> [B, 1, 1, T]; something even in a document without a token."""
    return never_empty(mask)[:, None, None]


def whole_states(reader: Reader, tokens: Tensor, lengths: Tensor, segments: Tensor | None) -> Tensor:
    """States of documents that are read in one pass, or in windows if they are longer than what the encoder reads.

    Args:
        reader: the encoder.
        tokens: [B, T].
        lengths: of the documents, in the host's memory.
        segments: 0 or 1 a token, [B, T].

    Returns:
        [B, T, H].
    """
    if reader.room is not None and tokens.shape[1] > reader.room:
        return reader.read(tokens, windows(lengths.tolist(), reader.room), segments)
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).to(tokens.device)
    return reader(tokens, mask, segments)
