"""Features of discourse parsers: tokens and their EDUs, sentences and paragraphs."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from datamodules.batch import Batch, on_host
from datamodules.discourse.distributions import NUCLEARITIES
from datamodules.discourse.parses import align
from datamodules.discourse.relations import Inventory
from datamodules.text.edu_features import Request, sentence_starts
from datamodules.text.hashing import FEATURES, hashed_words, text_digest
from datamodules.text.offsets import Span as Offsets
from datamodules.text.offsets import paragraph_offsets
from datamodules.text.subwords import Subwords

Node = tuple[int, int, int, int]  # start, split, end, class


def label_classes(inventory: Inventory) -> list[tuple[str, str]]:
    """Return the classes of nodes: each nuclearity (NS, SN, NN) with each coarse relation, in the parser's order."""
    return [(nuclearity, relation) for nuclearity in NUCLEARITIES for relation in inventory.coarse]


@dataclass
class ParserFeatures:
    """Features of a text: T tokens, E EDUs, nodes whose children are EDUs start ... split and split + 1 ... end."""

    id: str  # id of the text
    digest: str  # digest of the text and its EDUs; texts with the same digest have the same EDU vectors
    tokens: Tensor  # ids of subwords [T], or hashed features of words [T, FEATURES]
    token_edus: Tensor  # index of the EDU of each token, -1 for none, [T]
    sentence: Tensor  # index of the sentence in which each EDU begins, [E]
    paragraph: Tensor  # index of the paragraph in which each EDU begins, [E]
    nodes: Tensor  # gold nodes (start, split, end, class), [E - 1, 4]; [0, 4] if unknown

    @property
    def size(self) -> int:
        """Number of EDUs E."""
        return len(self.sentence)


def parser_features(
    request: Request, edus: Sequence[Offsets], subwords: Subwords | None, nodes: Sequence[Node] = (), name: str = ""
) -> ParserFeatures:
    """Return the features of a text with at least one EDU; `name` is its id, and `nodes` is its gold tree, if any.

    Tokens are ids of `subwords`, the tokenizer of the parser's encoder, or, if None, `FEATURES` hashes of each word.

    Raises:
        UserError: if a sentence or a paragraph lies outside the text.
    """
    text = request.text
    if subwords is None:
        offsets, hashes = hashed_words(text)
        tokens = torch.tensor(hashes, dtype=torch.long).reshape(-1, FEATURES)  # also without words: [0, FEATURES]
    else:
        ids, offsets = subwords(text)
        tokens = torch.tensor(ids, dtype=torch.long)  # [T]
    return ParserFeatures(
        id=name,
        digest=text_digest(json.dumps([text, [list(edu) for edu in edus]])),  # key of cached EDU vectors
        tokens=tokens,
        token_edus=align(torch.tensor(offsets).reshape(-1, 2), torch.tensor(edus, dtype=torch.int32)),
        sentence=_unit_of(edus, sentence_starts(request, name)),  # index of the sentence of each EDU, [E]
        paragraph=_unit_of(edus, [start for start, _ in request.paragraphs or paragraph_offsets(text)]),
        nodes=torch.tensor(nodes, dtype=torch.long).reshape(-1, 4),  # class: index in `label_classes`; no node: [0, 4]
    )


def _unit_of(edus: Sequence[Offsets], unit_starts: Sequence[int]) -> Tensor:
    """Return the index of the last sentence or paragraph that begins before or with each EDU, 0 if none does, [E]."""
    return torch.tensor([max(0, bisect_right(unit_starts, start) - 1) for start, _ in edus])


@dataclass
class ParserBatch(Batch):
    """Batch of B texts with T tokens and N nodes in all, and up to E EDUs each; for classes see `label_classes`."""

    digests: list[str]  # digest of each text and its EDUs
    tokens: Tensor  # tokens of all texts, [T] or [T, FEATURES]
    token_counts: list[int]  # number of tokens of each text
    token_edus: Tensor  # index of the EDU of each token within its text, -1 for none, [T]
    edu_tokens: Tensor  # number of tokens of each EDU, [B, E]
    sentence: Tensor  # index of the sentence of each EDU, [B, E]
    paragraph: Tensor  # index of the paragraph of each EDU, [B, E]
    sizes: Tensor = on_host()  # number of EDUs of each text, [B], in host memory
    nodes: Tensor  # gold nodes of all texts (index of the text, start, split, end, class), [N, 5]

    @classmethod
    def of(cls, texts: list[ParserFeatures]) -> Self:
        """Build a batch; tokens and nodes of all texts are concatenated, features of EDUs are padded with zeros."""
        edu_tokens = [torch.bincount(text.token_edus[text.token_edus >= 0], minlength=text.size) for text in texts]
        # (index of the text, start, split, end, class), [E - 1, 5]
        nodes = [torch.nn.functional.pad(text.nodes, (1, 0), value=number) for number, text in enumerate(texts)]
        return cls(
            ids=[text.id for text in texts],
            references=[[] for _ in texts],  # none: a parser does not summarize
            digests=[text.digest for text in texts],
            tokens=torch.cat([text.tokens for text in texts]),
            token_counts=[len(text.tokens) for text in texts],
            token_edus=torch.cat([text.token_edus for text in texts]),
            edu_tokens=pad_sequence(edu_tokens, batch_first=True),
            sentence=pad_sequence([text.sentence for text in texts], batch_first=True),
            paragraph=pad_sequence([text.paragraph for text in texts], batch_first=True),
            sizes=torch.tensor([text.size for text in texts]),
            nodes=torch.cat(nodes),
        )
