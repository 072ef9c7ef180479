"""Token vectors of texts of any length, from encoders with an input limit."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

# model families whose first position id is the padding id plus one
_OFFSET_POSITIONS = (
    "roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "longformer", "mpnet", "xmod",
    "data2vec-text",
)  # fmt: skip


class Windows(NamedTuple):
    """Windows over a sequence of T tokens, which may overlap; each token takes its vector from one of them."""

    starts: Tensor  # first token of each window, [W]
    size: int  # tokens of every window
    window: Tensor  # index of the window that gives the vector of each token, [T]

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return (start, begin, end) of each window: its first token; tokens `begin` to `end` - 1 use its vectors."""
        counts = torch.bincount(self.window, minlength=len(self.starts))  # tokens of each window, which are consecutive
        ends = counts.cumsum(0)
        return list(zip(self.starts.tolist(), (ends - counts).tolist(), ends.tolist()))


def plan_windows(length: int, size: int) -> Windows:
    """Plan windows of at most `size` >= 1 tokens that overlap by half; the last one ends at the end of the sequence.

    A token takes its vector from the window with the nearest center, so that it has context of at least a quarter of a
    window on either side (less at the ends of the sequence, and in windows of two or three tokens).
    """
    if size < 1:
        raise ValueError(f"a window must hold at least one token, got {size}")
    size = min(size, length)
    last_start = length - size
    starts = torch.arange(0, last_start, max(1, size // 2))  # windows of one token do not overlap
    starts = torch.cat([starts, torch.tensor([last_start])]) if length else starts           # [W], none if empty
    # halfway between neighbors' centers, start + (size - 1) / 2; plus 0.25 (-0.5 + 0.25), so ties go to the earlier one
    borders = (starts[:-1] + starts[1:] + size) / 2 - 0.25                                   # [W - 1]
    return Windows(starts, size, window=torch.searchsorted(borders, torch.arange(length).float()))  # of each token


def plan_disjoint_windows(length: int, size: int) -> Windows:
    """Plan disjoint windows for training, but the second may begin within the first, which gives no vectors from there.

    It begins at random in the second half, or at the end, of the first. The windows take about half the computation of
    `plan_windows`. Tokens near a boundary have context on one side only; the random first boundary changes which.
    """
    if length <= size:
        return plan_windows(length, size)  # a single window
    first_boundary = int(torch.randint(size // 2 + 1, size + 1, ()))
    starts = torch.cat([torch.tensor([0]), torch.arange(first_boundary, length, size)])  # [W]; the first two overlap
    return Windows(starts, size, window=torch.searchsorted(starts[1:], torch.arange(length), right=True))


class WindowedEncoder(nn.Module):
    """Base class of encoders over windows: splits documents, encodes windows in batches, and joins the vectors.

    A window has 1 to `max_tokens` tokens of a document; `batch_size` windows are encoded together.
    """

    def __init__(self, size: int, max_tokens: int, batch_size: int) -> None:
        super().__init__()
        if max_tokens < 1 or batch_size < 1:
            raise ValueError(f"encoders need room for a token and a batch of one; got {max_tokens}, {batch_size}")
        self.size = size  # D, of the token vectors
        self.max_tokens = max_tokens
        self.batch_size = batch_size

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Return the token vectors [T, D] of each window of at most `max_tokens` tokens."""
        raise NotImplementedError

    def plan(self, length: int) -> Windows:
        """Return the windows over a document of that many tokens."""
        return plan_windows(length, self.max_tokens)

    def forward(self, documents: Sequence[Tensor]) -> list[Tensor]:
        """Encode documents of any length, each token ids [T] or F features per word [T, F] -> token vectors [T, D]."""
        plans = [self.plan(len(document)) for document in documents]
        windows = []
        for document, plan in zip(documents, plans):
            windows += [document[start : start + plan.size] for start in plan.starts.tolist()]
        # windows of similar length share a batch, which needs little padding
        order = sorted(range(len(windows)), key=lambda i: len(windows[i]))
        encoded: list[Tensor] = [torch.empty(0)] * len(windows)  # in the order of `windows`, filled batch by batch
        for start in range(0, len(order), self.batch_size):
            indices = order[start : start + self.batch_size]
            for i, vectors in zip(indices, self.encode([windows[i] for i in indices])):
                encoded[i] = vectors
        results, remaining = [], iter(encoded)  # `remaining` gives the windows in order, document by document
        for document, plan in zip(documents, plans):
            # of the window that starts at `start`, take the vectors of the document's tokens `begin` to `end` - 1
            vectors = [next(remaining)[begin - start : end - start] for start, begin, end in plan.ranges()]
            results.append(torch.cat(vectors) if vectors else torch.zeros(0, self.size, device=document.device))
        return results


def load_encoder(name: str, **options: Any) -> nn.Module:
    """Load a pretrained encoder by its Hugging Face name (downloaded if not cached) or folder, in eval mode.

    Of an encoder-decoder, only the encoder is returned. `options` are arguments of `from_pretrained`.
    """
    from transformers import AutoModel  # takes seconds to load
    from transformers.utils.logging import disable_progress_bar

    from lightning_modules.networks.pretrained_attention import use_dropout_attention

    disable_progress_bar()
    model = AutoModel.from_pretrained(name, dtype=torch.float32, **options)  # also of a checkpoint in half precision
    use_dropout_attention(model)  # faster with dropout on a CPU
    return model.get_encoder() if model.config.is_encoder_decoder else model


class TextEncoder(WindowedEncoder):
    """Pretrained encoder over texts longer than its input limit.

    Args:
        model: encoder of Hugging Face Transformers, see `load_encoder`.
        special: ids before and after each window, [CLS] and [SEP] in BERT.
        layers: layers whose hidden states are concatenated; 0 is the embedding layer, -1 the last.
        frozen: do not train the encoder: no gradient, no dropout.
        window: tokens of a window, including special ones; None for all positions of the model.
        batch_size: number of windows that are encoded together.
        pad_id: id that pads shorter windows.
        disjoint: windows do not overlap in training, see `plan_disjoint_windows`.
    """

    def __init__(
        self,
        model: nn.Module,
        special: tuple[Sequence[int], Sequence[int]] = ((), ()),
        layers: Sequence[int] = (-1,),
        frozen: bool = True,
        window: int | None = 256,
        batch_size: int = 16,
        pad_id: int = 0,
        disjoint: bool = False,
    ) -> None:
        config = model.config
        num_layers = config.num_hidden_layers
        limit = max_positions(config)  # None with relative positions
        if not layers or not all(-num_layers - 1 <= layer <= num_layers for layer in layers):
            choices = f"0 to {num_layers} (or -1 to {-num_layers - 1})"
            raise ValueError(f"layers must be some of {choices}, got {list(layers)}")
        if window is None:
            window = 2**20 if limit is None else limit  # 2**20: longer than any document
        if limit is not None and window > limit:
            raise ValueError(f"the encoder reads {limit} tokens at once; window is {window}")
        super().__init__(len(layers) * config.hidden_size, window - len(special[0]) - len(special[1]), batch_size)
        self.model = model
        self.layers = tuple(layers)
        self.frozen = frozen
        self.pad_id = pad_id
        self.special = (list(special[0]), list(special[1]))
        self.disjoint = disjoint
        model.train()  # `from_pretrained` returns a model in eval mode, which Lightning would not change
        if frozen:
            self.freeze()

    def freeze(self) -> None:
        """Do not train the encoder: no gradient, no dropout."""
        self.frozen = True
        self.model.requires_grad_(False).eval()

    def freeze_lowest(self, count: int) -> None:
        """Freeze the lowest `count` layers and weights outside layers, such as embeddings; train the other layers."""
        num_layers = self.model.config.num_hidden_layers
        if not 0 < count <= num_layers:
            raise ValueError(f"the encoder has {num_layers} layers; {count} cannot be frozen")
        # model families call the list of their layers differently, so it is recognized by its length
        lists = [module for module in self.model.modules() if isinstance(module, nn.ModuleList)]
        layers = next(modules for modules in lists if len(modules) == num_layers)
        self.model.requires_grad_(False)
        for layer in layers[count:]:
            layer.requires_grad_(True)

    def set_dropout(self, probability: float) -> None:
        """Set the dropout probability of all dropout modules of the encoder."""
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = probability

    def plan(self, length: int) -> Windows:
        """Return the windows over a document of that many tokens; without overlap in training with `disjoint`."""
        if self.disjoint and self.training and not self.frozen:
            return plan_disjoint_windows(length, self.max_tokens)
        return plan_windows(length, self.max_tokens)

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; a frozen model stays in eval mode."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Return the token vectors of each of W windows, without special tokens: [T] -> [T, D], for all `layers`."""
        prefix, suffix = (windows[0].new_tensor(ids) for ids in self.special)
        inputs = [torch.cat([prefix, window, suffix]) for window in windows]
        ids = pad_sequence(inputs, batch_first=True, padding_value=self.pad_id)              # [W, maximum length]
        lengths = torch.tensor([len(input_ids) for input_ids in inputs], device=ids.device)
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]              # True at tokens
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = self.model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        vectors = torch.cat([states[layer] for layer in self.layers], -1)                    # [W, maximum length, D]
        first = len(prefix)  # position of the first token of the document
        return [padded[first : first + len(window)] for padded, window in zip(vectors, windows)]


def max_positions(config, part: Literal["encoder", "decoder"] = "encoder") -> int | None:
    """Return the input limit of (a part of) a Hugging Face model in tokens; None for no limit."""
    names = (f"max_{part}_position_embeddings", "max_position_embeddings")  # LED's and others'; T5 has neither
    limit = next((getattr(config, name) for name in names if hasattr(config, name)), None)
    if limit is None or limit < 0:  # XLNet has -1
        return None
    offset = config.pad_token_id + 1 if config.model_type in _OFFSET_POSITIONS else 0  # of the first position id
    return limit - offset


class SmallEncoder(WindowedEncoder):
    """Small encoder that is trained with the rest: embeddings of hashed word features and one bidirectional LSTM.

    A word vector is the concatenation of one vector for each group of features (the word, its prefixes, its suffixes,
    its shape, in this order by default), whose embeddings are added, as in fastText.

    Args:
        groups: for each group the number of features, which `datamodules.text.hashing` computes, the number of buckets
            (embeddings) and the width of its vector.
        hidden_size: hidden size of each direction of the LSTM; output vectors are twice as wide.
        window, batch_size: maximum tokens of a window; number of windows that are encoded together.
        dropout: dropout on the word vectors and on the output.
        word_dropout: probability to drop all features of a word in training, so that the encoder learns from context.
    """

    def __init__(
        self,
        groups: Sequence[tuple[int, int, int]] = ((1, 16384, 64), (4, 8192, 32), (4, 8192, 32), (1, 512, 16)),
        hidden_size: int = 128,
        window: int = 256,
        batch_size: int = 32,
        dropout: float = 0.3,
        word_dropout: float = 0.05,
    ) -> None:
        super().__init__(2 * hidden_size, window, batch_size)
        self.counts = [count for count, _, _ in groups]
        self.word_dropout = word_dropout
        self.tables = nn.ModuleList(nn.Embedding(buckets, width) for _, buckets, width in groups)  # one for each group
        for table, count in zip(self.tables, self.counts):
            nn.init.normal_(table.weight, std=(1 / count) ** 0.5)  # so that a sum over `count` features has variance 1
        self.dropout = Dropout(dropout)
        total_width = sum(width for _, _, width in groups)
        self.lstm = nn.LSTM(total_width, hidden_size, batch_first=True, bidirectional=True)

    def embed(self, features: Tensor) -> Tensor:
        """Return word vectors without context: nonnegative hashes of F features, [..., F] -> [..., E] of all groups."""
        vectors = []
        for table, group in zip(self.tables, features.split(self.counts, -1)):
            buckets = group % len(table.weight)                                              # [..., F of the group]
            vectors.append(table(buckets).sum(-2))                                           # [..., E of the group]
        return torch.cat(vectors, -1)

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Return the word vectors of each of W windows: [T, F] hashes of features -> [T, D]."""
        lengths = torch.tensor([len(window) for window in windows])                          # [W], on the CPU
        words = self.embed(pad_sequence(windows, batch_first=True))  # `lengths` exclude padding: [W, T, E]
        if self.training and self.word_dropout:
            is_kept = torch.rand(words.shape[:2], device=words.device) >= self.word_dropout  # [W, T]
            words = words * is_kept.unsqueeze(-1)
        states = bidirectional(self.lstm, self.dropout(words), lengths).states               # [W, T, D]
        return [padded[: len(window)] for padded, window in zip(self.dropout(states), windows)]
