"""Vectors of sentences and documents by a frozen encoder, which later training runs read from a file."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from datamodules.text.hashing import text_digest
from lightning_modules.extractive.names import Pooling
from lightning_modules.extractive.scoring import Pooler, pool_texts
from lightning_modules.stored import digest

FROZEN_POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "max")  # poolings without trained weights


def pool_all(states: Tensor, whole: Tensor | None, owner: Tensor, heads: Tensor, width: int) -> Tensor:
    """Pool each document and its L = `width` sentences by cls, mean and max (P = 3 poolings): [B, 1 + L, P, H].

    Almost all of the time goes to the encoder, so the results of all poolings are computed and stored together. States
    of tokens, [B, T, H], are `states` for sentences and `whole` for documents, which differ in `separate` encoding; if
    `whole` is None, the vectors of documents are 0. `owner` is the sentence of each token, -1 at padding; `heads` is
    True at the first token of each piece of a sentence (a long one has several); both are [B, T].
    """
    pooled = []
    for kind in FROZEN_POOLINGS:
        pooler = Pooler(kind, states.shape[-1])
        vectors = pooler(states, owner, heads, width)                                          # [B, L, H]
        document = torch.zeros_like(vectors[:, 0]) if whole is None else pool_texts(pooler, whole, owner >= 0)
        pooled.append(torch.cat([document.unsqueeze(1), vectors], 1))
    return torch.stack(pooled, 2)


class VectorCache:
    """Cache of the vectors of documents and their sentences, float32, by digests of texts, in memory and in a file.

    A sentence takes 12 H bytes (3 poolings of width H), 4.6 kB with MiniLM. A damaged file counts as empty, and is
    replaced. The file's name depends on the encoder's weights, `state`, and `settings`; no folder means no file.
    """

    def __init__(self, state: dict[str, Tensor], *settings: object, folder: Path | None = None) -> None:
        name = f"{digest(state, *settings)[:24]}.safetensors"  # 24 digits: collisions are negligible
        self.path = None if folder is None else Path(folder, "vectors", name)
        self._vectors = self._stored()
        self._num_stored = len(self._vectors)

    def _stored(self) -> dict[str, Tensor]:
        """Return the vectors in the file by their keys, each [1 + L, P, H]: of a document, then of its L sentences."""
        try:
            return load_file(self.path) if self.path is not None and self.path.is_file() else {}
        except (OSError, SafetensorError):
            return {}

    def vectors(
        self, texts: Sequence[Sequence[str]], starts: Sequence[Sequence[int]], compute: Callable[[], Tensor]
    ) -> Tensor:
        """Return the vectors of documents and their sentences (`texts`), see `pool_all`, [B, 1 + L, P, H], on the CPU.

        If any document is not cached, `compute` returns the vectors of all, which are then kept in memory. `starts` are
        the first tokens of each document's pieces, into which long sentences are split; the vectors depend on them.
        """
        keys = [text_digest(json.dumps([list(text), list(first)])) for text, first in zip(texts, starts)]
        if any(key not in self._vectors for key in keys):
            for key, padded, text in zip(keys, compute().float().cpu(), texts):
                self._vectors[key] = padded[: 1 + len(text)].clone()  # a slice would keep the batch in memory
        return pad_sequence([self._vectors[key] for key in keys], batch_first=True)

    def save(self) -> None:
        """Write the file if there are new vectors; vectors that another process has written meanwhile are kept."""
        if self.path is None or len(self._vectors) == self._num_stored:
            return
        self._vectors = self._stored() | self._vectors  # the file may have grown since it was read
        self._num_stored = len(self._vectors)  # number of vectors in the file
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}")  # other processes may write the same file
        try:
            save_file(self._vectors, temporary)
            temporary.replace(self.path)
        finally:
            temporary.unlink(missing_ok=True)
