"""Encoders of token ids, pretrained or from scratch, for documents longer than their input limit."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.text_encoder import load_encoder, max_positions, plan_windows
from lightning_modules.networks.transformer import EncoderLayer, ensure_nonempty, sinusoidal

_CHUNK = 16_384  # tokens, including padding, of the passages that are encoded together


class Passage(NamedTuple):
    """Part of a document that is encoded at once; its tokens before `first` and from `last` on are only context."""

    document: int  # index in the batch
    start: int  # position of the first token in the document
    size: int  # number of tokens
    first: int  # position in the document of the first token whose state is used
    last: int  # position in the document after the last token whose state is used


def windows(lengths: Sequence[int], max_tokens: int) -> list[Passage]:
    """Return overlapping windows of at most `max_tokens` tokens over documents of `lengths`, see `plan_windows`."""
    passages = []
    for document, length in enumerate(lengths):
        plan = plan_windows(length, max_tokens)
        for start, first, last in plan.ranges():  # see `Passage`
            passages.append(Passage(document=document, start=start, size=plan.size, first=first, last=last))
    return passages


def sections(lengths: Sequence[int], starts: Sequence[Sequence[int]]) -> list[Passage]:
    """Cut documents of `lengths` into disjoint passages at a list of `starts` per document, such as sentence starts."""
    passages = []
    for document, (length, document_starts) in enumerate(zip(lengths, starts)):
        for start, end in zip(document_starts, [*document_starts[1:], length]):  # each ends where the next one starts
            passages.append(Passage(document=document, start=start, size=end - start, first=start, last=end))
    return passages


class Reader(nn.Module):
    """Encoder of token ids: a model of Hugging Face or a `ScratchEncoder`, with states of width H = `size`.

    `max_tokens` is its input limit (None for no limit), `segments` the number of segment types, 2 for BERT.
    """

    def __init__(self, model: nn.Module, size: int, max_tokens: int | None, segments: int) -> None:
        super().__init__()
        self.model = model
        self.size = size
        self.max_tokens = max_tokens
        self.segments = segments

    @classmethod
    def pretrained(
        cls, name: str, dropout: float | None = None, attention_dropout: float | None = None, extend: int = 0
    ) -> "Reader":
        """Load a pretrained encoder by its Hugging Face name (downloaded if not cached) or folder.

        Dropout of hidden states and of attention weights is as in the checkpoint by default. A lower input limit is
        raised to `extend` tokens, with copies of the last position (Liu and Lapata 2019).
        """
        from transformers import AutoConfig  # takes seconds to load

        config = AutoConfig.from_pretrained(name)
        # model families name these options differently
        options = dict.fromkeys(("hidden_dropout_prob", "dropout"), dropout)
        options |= dict.fromkeys(("attention_probs_dropout_prob", "attention_dropout"), attention_dropout)
        for option, value in options.items():
            if value is not None and hasattr(config, option):
                setattr(config, option, value)
        model = load_encoder(name, config=config)
        if getattr(model, "pooler", None) is not None:  # BERT and RoBERTa have one
            model.pooler = None  # unused: its parameters would get no gradient
        max_tokens = max_positions(config)
        if max_tokens is not None and extend > max_tokens:
            extend_positions(model, extend - max_tokens)
            max_tokens = extend
        model.train()  # `from_pretrained` returns a model in eval mode, which Lightning would not change
        segments = getattr(config, "type_vocab_size", None) or 0  # T5, for example, has no segment embeddings
        return cls(model, config.hidden_size, max_tokens, segments)

    @classmethod
    def from_scratch(
        cls, vocab_size: int, size: int, heads: int, layers: int, dropout: float, segments: int = 2
    ) -> "Reader":
        """Build an untrained Transformer encoder for input of any length; arguments as of `ScratchEncoder`."""
        model = ScratchEncoder(vocab_size, size, heads, layers, dropout, segments)
        return cls(model, size, None, segments)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Encode ids [B, T] -> [B, T, H]; the mask is True at tokens; segments, 0 or 1, are ignored by some models."""
        if isinstance(self.model, ScratchEncoder):
            return self.model(ids, mask, segments)
        has_segments = segments is not None and self.segments > 1  # RoBERTa, for example, has one type for all tokens
        type_ids = {"token_type_ids": segments} if has_segments else {}
        from lightning_modules.networks.pretrained_attention import prepared_mask  # transformers takes seconds to load

        # the encoder of LED takes a mask [B, T] alone, unlike its decoder
        is_led = self.model.config.model_type == "led"
        mask = mask.long() if is_led else prepared_mask(self.model.config, mask, ids.shape[1], self.model.dtype)
        return self.model(input_ids=ids, attention_mask=mask, **type_ids).last_hidden_state

    def encode_passages(
        self, ids: Tensor, passages: Sequence[Passage], segments: Tensor | None = None, chunk: int = _CHUNK
    ) -> Tensor:
        """Encode documents passage by passage: ids [B, T] -> [B, T, H], zero at tokens whose state no passage gives.

        At most one passage gives the state of a token. Passages are encoded in batches of at most `chunk` tokens,
        padding included; a longer passage is a batch by itself.
        """
        B, T = ids.shape
        flat_ids = ids.flatten()                                                             # [B T]
        flat_segments = None if segments is None else segments.flatten()
        vectors, positions = [], []  # used states, and their positions in [B T]
        for indices in batches_of_similar_size([passage.size for passage in passages], chunk):
            group = [passages[index] for index in indices]
            width = max(passage.size for passage in group)  # P, to which all are padded
            document, start, size, first, last = torch.tensor(group).unsqueeze(-1).unbind(1)  # of N passages, [N, 1]
            offsets = torch.arange(width)                                                    # [P]
            mask = (offsets < size).to(ids.device, non_blocking=True)                        # [N, P]
            # position of each token in [B T]; where a passage is padded this is any token, which the mask hides
            index = (document * T + start + offsets).clamp_max(B * T - 1).to(ids.device, non_blocking=True)  # [N, P]
            group_segments = None if flat_segments is None else flat_segments[index]
            states = self(flat_ids[index], mask, group_segments)                             # [N, P, H]
            # keep the states of the tokens from `first` to before `last`
            used = (start + offsets >= first) & (start + offsets < last)                     # [N, P]
            # indices of the M used tokens, [M]; from the CPU, since `nonzero` on a GPU would make the program wait
            used_index = used.flatten().nonzero().squeeze(1).to(ids.device, non_blocking=True)
            vectors.append(states.flatten(0, 1)[used_index])                                 # [M, H]
            positions.append(index.flatten()[used_index])
        if not vectors:
            return torch.zeros(B, T, self.size, device=ids.device)
        joined = torch.cat(vectors)
        return joined.new_zeros(B * T, self.size).index_copy(0, torch.cat(positions), joined).view(B, T, -1)


def batches_of_similar_size(sizes: Sequence[int], max_total: int) -> Iterator[list[int]]:
    """Yield batches of item indices, largest first: count x largest size is at most `max_total`, or count is 1."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    start = 0
    while start < len(order):
        count = max(1, max_total // sizes[order[start]])  # the first item is the largest; others are padded to it
        yield order[start : start + count]
        start += count


def extend_positions(model: nn.Module, additional: int) -> None:
    """Add learned positions to a Hugging Face model, as copies of its last one; a `ValueError` if it has none."""
    candidates = (module for module in model.modules() if hasattr(module, "position_embeddings"))
    module = next((module for module in candidates if isinstance(module.position_embeddings, nn.Embedding)), None)
    if module is None:
        name = type(model).__name__
        raise ValueError(f"{name} has no table of positions to extend; set model.encoder.long_input to windows")
    table = module.position_embeddings
    weight = torch.cat([table.weight.data, table.weight.data[-1:].repeat(additional, 1)])    # [positions, H]
    module.position_embeddings = nn.Embedding.from_pretrained(weight, freeze=False, padding_idx=table.padding_idx)
    model.config.max_position_embeddings = len(weight)
    # models store default position and segment ids as buffers, which have to be as long as the table
    for name, buffer in dict(module.named_buffers(recurse=False)).items():
        if name == "position_ids":
            module.register_buffer(name, torch.arange(len(weight)).unsqueeze(0), persistent=False)
        elif name == "token_type_ids":
            module.register_buffer(name, buffer.new_zeros(1, len(weight)), persistent=False)


class ScratchEncoder(nn.Module):
    """Transformer encoder with sinusoidal positions, for input of any length, with `kinds` segment types.

    States have width H = `size`, feed-forward networks 4 H inside. Dropout is on embeddings and in all layers.
    """

    def __init__(self, vocab_size: int, size: int, heads: int, layers: int, dropout: float, kinds: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        self.kinds = nn.Embedding(kinds, size)
        nn.init.normal_(self.embedding.weight, std=size**-0.5)  # `forward` multiplies it by sqrt(H): variance 1
        nn.init.normal_(self.kinds.weight, std=size**-0.5)  # not multiplied, so smaller than word vectors
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(size, heads, 4 * size, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Encode ids [B, T] -> [B, T, H]; the mask is True at tokens; `segments` are segment types [B, T]."""
        embedded_segments = self.kinds.weight[0] if segments is None else self.kinds(segments)  # None: all of type 0
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5 + embedded_segments  # scaled as by Vaswani et al.
        x = self.dropout(x + sinusoidal(ids.shape[1], x.shape[-1], ids.device).to(x.dtype))  # [B, T, H]
        allowed = attention_mask(mask)                                                       # [B, 1, 1, T]
        for layer in self.layers:
            x = layer(x, allowed)
        return self.norm(x)


def attention_mask(mask: Tensor) -> Tensor:
    """Return a mask of attention, [B, T] -> [B, 1, 1, T], True at the first position of documents without tokens."""
    return ensure_nonempty(mask)[:, None, None]


def encode_documents(reader: Reader, tokens: Tensor, lengths: Tensor, segments: Tensor | None) -> Tensor:
    """Encode documents, in windows if one is too long: ids [B, T], lengths [B] (CPU), segments 0, 1 -> [B, T, H]."""
    if reader.max_tokens is not None and tokens.shape[1] > reader.max_tokens:
        return reader.encode_passages(tokens, windows(lengths.tolist(), reader.max_tokens), segments)
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).to(tokens.device, non_blocking=True)
    return reader(tokens, mask, segments)
