"""Vectors of the tokens of texts of any length, from encoders that read only so many at once."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lightning_modules.networks.recurrent import bidirectional

# families whose first position has the number of the padding token plus one
_OFFSET_POSITIONS = ("roberta", "camembert", "xlm-roberta", "xlm-roberta-xl", "longformer")

_NO_LIMIT = 2**20  # tokens of a window of an encoder with relative positions


class Windows(NamedTuple):
    """Overlapping windows over a sequence."""

    starts: Tensor  # first token of each window, [W]
    size: int  # tokens of every window
    window: Tensor  # window that each token takes its vector from, [T]


def plan_windows(length: int, size: int) -> Windows:
    """Windows that overlap by half; the last one ends where the sequence ends.

    A token belongs to the window whose centre is nearest, so that at least a quarter of a window stands on either side
    of it (less at the ends of the sequence, and of windows of two or three tokens).

    Args:
        length: T, tokens of the sequence.
        size: most tokens that a window holds.

    Raises:
        ValueError: if a window holds nothing.
    """
    if size < 1:
        raise ValueError(f"a window must hold at least one token, got {size}")
    size = min(size, length)
    last = length - size
    starts = torch.arange(0, last, max(1, size // 2))
    starts = torch.cat([starts, torch.tensor([last])]) if length else starts                 # [W]
    borders = (starts[:-1] + starts[1:] + size) / 2 - 0.25  # a token in the middle of two centres is the earlier one's
    return Windows(starts, size, torch.searchsorted(borders, torch.arange(length).float()))


class WindowedEncoder(nn.Module):
    """Base of encoders that read windows: cuts documents, encodes the windows in batches, puts the vectors together.

    Args:
        size: D, width of a token's vector.
        room: tokens of a document that a window holds.
        batch_size: windows that are encoded together.
    """

    def __init__(self, size: int, room: int, batch_size: int) -> None:
        super().__init__()
        if room < 1 or batch_size < 1:
            raise ValueError(f"an encoder needs room for a token and a batch of one window; got {room}, {batch_size}")
        self.size, self.room, self.batch_size = size, room, batch_size

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Vectors [T, D] of the tokens of each window, at most `room` of them."""
        raise NotImplementedError

    def forward(self, documents: Sequence[Tensor]) -> list[Tensor]:
        """Vectors of the tokens of whole documents.

        Args:
            documents: token ids or features of each, [T] or [T, F]; T may be 0 and has no upper limit.

        Returns:
            A vector a token, [T, D] for each document.
        """
        plans = [plan_windows(len(document), self.room) for document in documents]
        pieces = [
            document[start : start + plan.size]
            for document, plan in zip(documents, plans)
            for start in plan.starts.tolist()
        ]
        # windows of like length share a batch: little padding
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i]))
        encoded: list[Tensor] = [torch.empty(0)] * len(pieces)
        for at in range(0, len(order), self.batch_size):
            chosen = order[at : at + self.batch_size]
            for i, vectors in zip(chosen, self.encode([pieces[i] for i in chosen])):
                encoded[i] = vectors
        results, first = [], 0
        for document, plan in zip(documents, plans):
            mine = encoded[first : first + len(plan.starts)]
            first += len(mine)
            results.append(self._joined(mine, plan) if mine else self._nothing(document))
        return results

    def _joined(self, vectors: list[Tensor], plan: Windows) -> Tensor:
        """The vector of every token, from the window that it belongs to."""
        counts = torch.bincount(plan.window, minlength=len(vectors)).tolist()
        parts, begin = [], 0
        for window, start, count in zip(vectors, plan.starts.tolist(), counts):
            parts.append(window[begin - start : begin - start + count])
            begin += count
        return torch.cat(parts)                                                              # [T, D]

    def _nothing(self, document: Tensor) -> Tensor:
        return torch.zeros(0, self.size, device=document.device)


class TextEncoder(WindowedEncoder):
    """A pretrained encoder over texts longer than what it reads at once.

    Args:
        model: a Transformers encoder, called with `input_ids`, `attention_mask` and `output_hidden_states`; a LoRA
            wrapper of `peft` around one fits too.
        special: ids that stand before and behind every window, [CLS] and [SEP] in BERT.
        layers: hidden states that make a vector, one after the other; 0 is the embedding layer, -1 the last.
        frozen: the encoder is not trained: no gradient, no dropout.
        window: tokens that the encoder reads at once, the special ones included; None for as many as it has positions.
        batch_size: windows that are encoded together.
        pad_id: id that fills up the shorter windows.

    Raises:
        ValueError: if a layer is not there, or a window is longer than the model has positions.
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
    ) -> None:
        config = model.config
        count, most = config.num_hidden_layers, positions(config)
        if not layers or not all(-count - 1 <= layer <= count for layer in layers):
            raise ValueError(f"layers must be some of 0 to {count} (or -1 to {-count - 1}), got {list(layers)}")
        window = most or _NO_LIMIT if window is None else window
        if most is not None and window > most:
            raise ValueError(f"the encoder reads {most} tokens at once; window is {window}")
        super().__init__(len(layers) * config.hidden_size, window - len(special[0]) - len(special[1]), batch_size)
        self.model, self.layers, self.frozen, self.pad_id = model, tuple(layers), frozen, pad_id
        self.special = (list(special[0]), list(special[1]))
        if frozen:
            model.requires_grad_(False)
        model.train(not frozen)  # Transformers hands it out in eval mode, and Lightning leaves modes as they are

    @property
    def window(self) -> int:
        """Tokens that the encoder reads at once, the special ones included."""
        return self.room + sum(map(len, self.special))

    @window.setter
    def window(self, size: int) -> None:
        self.room = size - sum(map(len, self.special))

    @classmethod
    def pretrained(cls, name: str, special: tuple[Sequence[int], Sequence[int]], **options) -> Self:
        """An encoder by its Hugging Face name (downloaded if it is not there) or from a folder.

        `special` and `pad_id` are the tokenizer's, see `datamodules.text.subwords`.
        """
        from transformers import AutoModel  # takes seconds to load
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # reading a file is nothing to watch
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
        return cls(model.get_encoder() if model.config.is_encoder_decoder else model, special, **options)

    def train(self, mode: bool = True) -> Self:
        """Training mode; a frozen model stays as it is."""
        super().train(mode)
        if self.frozen:
            self.model.eval()
        return self

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Vectors of the tokens of each window, without the special ones: [T] -> [T, D]."""
        before, behind = (windows[0].new_tensor(ids) for ids in self.special)
        full = [torch.cat([before, window, behind]) for window in windows]
        ids = pad_sequence(full, batch_first=True, padding_value=self.pad_id)                # [W, T]
        lengths = torch.tensor([len(row) for row in full], device=ids.device)
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]              # [W, T]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = self.model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
        vectors = torch.cat([states[layer] for layer in self.layers], -1)                    # [W, T, D]
        return [row[len(before) : len(before) + len(window)] for row, window in zip(vectors, windows)]


def positions(config) -> int | None:
    """Tokens that a Transformers model can read at once; None where its positions have no limit."""
    most = getattr(config, "max_position_embeddings", None)
    if most is None or most < 0:
        return None
    return most - (config.pad_token_id + 1 if config.model_type in _OFFSET_POSITIONS else 0)


class SmallEncoder(WindowedEncoder):
    """A light encoder to be trained from scratch: embeddings of hashed word features, and one bidirectional LSTM.

    A word is the concatenation of a vector for each group of features (the word itself, its beginnings, its endings,
    its shape); within a group the embeddings of its features are added, as fastText does with n-grams.

    Args:
        groups: for each group the number of its features, of its buckets, and the width of its vectors; the features
            of `datamodules.text.hashing` by default.
        hidden_size: of each direction of the LSTM; a word's vector is twice as wide.
        window: words that the LSTM reads at once.
        batch_size: windows that are encoded together.
        dropout: of the word vectors, and of what comes out.
        word_dropout: share of words whose features are all hidden in training, so that context learns to speak.
    """

    def __init__(
        self,
        groups: Sequence[tuple[int, int, int]] = ((1, 8192, 64), (4, 4096, 32), (4, 8192, 32), (1, 512, 16)),
        hidden_size: int = 128,
        window: int = 256,
        batch_size: int = 32,
        dropout: float = 0.3,
        word_dropout: float = 0.05,
    ) -> None:
        super().__init__(2 * hidden_size, window, batch_size)
        self.counts, self.word_dropout = [count for count, _, _ in groups], word_dropout
        self.tables = nn.ModuleList(nn.Embedding(buckets, width) for _, buckets, width in groups)
        for table, count in zip(self.tables, self.counts):
            nn.init.normal_(table.weight, std=(1 / count) ** 0.5)  # of sums of like size
        self.dropout = nn.Dropout(dropout)
        width = sum(width for _, _, width in groups)
        self.lstm = nn.LSTM(width, hidden_size, batch_first=True, bidirectional=True)

    def embed(self, features: Tensor) -> Tensor:
        """Word vectors without context: hashes of features, any integers from 0 on, [..., F] -> [..., E]."""
        parts = features.split(self.counts, -1)
        return torch.cat([table(part % len(table.weight)).sum(-2) for table, part in zip(self.tables, parts)], -1)

    @torch.no_grad()
    def start_from(self, hashes: Tensor, vectors: Tensor) -> None:
        """Sets the first group's table from word vectors of another model, brought to its width by their principal
        components; a bucket takes the first of the words that fall into it, one without a word stays as it is.

        Args:
            hashes: of W words, the most frequent first, [W].
            vectors: of the words, [W, any width of at least the table's].
        """
        table = self.tables[0].weight                                                        # [buckets, E]
        centred = vectors - vectors.mean(0)
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -table.shape[1] :]     # of the largest variance
        reduced = centred @ axes                                                             # [W, E]
        reduced = reduced / reduced.std()
        first: dict[int, int] = {}
        for word, bucket in enumerate((hashes % len(table)).tolist()):
            first.setdefault(bucket, word)
        table[torch.tensor(list(first))] = reduced[torch.tensor(list(first.values()))]

    def encode(self, windows: list[Tensor]) -> list[Tensor]:
        """Vectors of the words of each window: [T, F] -> [T, D]."""
        lengths = torch.tensor([len(window) for window in windows])                          # in the host's memory
        words = self.embed(pad_sequence(windows, batch_first=True))                          # [W, T, E]
        if self.training and self.word_dropout:
            words = words * (torch.rand(words.shape[:2], device=words.device) >= self.word_dropout).unsqueeze(-1)
        states = bidirectional(self.lstm, self.dropout(words), lengths).states               # [W, T, D]
        return [row[: len(window)] for row, window in zip(self.dropout(states), windows)]
