"""Features of EDU segmenters: words, their layout, and the chains that are tagged."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from datamodules.batch import Batch, on_host
from datamodules.documents import UserError
from datamodules.text.hashing import FEATURES, hashed_words, text_digest
from datamodules.text.offsets import Span, paragraph_offsets, sentence_offsets
from datamodules.text.subwords import Subwords

LAYOUT = 6  # number of layout features of a word
MAX_CHAIN = 400  # words; a longer sentence is split, and each part is tagged separately


class Request(Protocol):
    """A text to segment; sentences and paragraphs are empty if unknown."""

    text: str
    sentences: Sequence[Span]
    paragraphs: Sequence[Span]


@dataclass
class EduFeatures:
    """Features of a text with N words and P subwords, for segmentation into elementary discourse units (EDUs)."""

    id: str  # id of the text
    digest: str  # digest of the text, see `text_digest`
    offsets: list[Span]  # (start, end) characters of the words
    words: Tensor  # hashed features, [N, FEATURES]
    # whether a word begins a sentence, begins a paragraph, follows white space; its distance in words from the start
    # and to the end of the sentence, and the length of the sentence; [N, LAYOUT]
    layout: Tensor
    chains: list[int]  # number of words of each chain: a sentence, or part of a long one, tagged at once; the sum is N
    begins: Tensor  # True at the first word of each sentence, where an EDU always begins, [N]
    starts: list[int]  # first characters of sentences
    pieces: Tensor  # ids of the subwords, [P]
    piece_words: Tensor  # index of the word that each subword belongs to, -1 for none, [P]
    tags: Tensor  # 1 where an EDU begins, [N]; zeros if unknown

    @property
    def size(self) -> int:
        """Number of words N."""
        return len(self.offsets)


def sentence_starts(request: Request, name: str = "text") -> list[int]:
    """Return the index of the first visible character of each sentence and of the text, sorted, each index once.

    Raises:
        UserError: if a sentence or a paragraph lies outside the text, which the message calls `name`.
    """
    text = request.text
    for kind in ("sentences", "paragraphs"):
        for number, (start, end) in enumerate(getattr(request, kind)):
            if not 0 <= start <= end <= len(text):
                place = f"{kind}[{number}] is characters {start} to {end} of a text of {len(text)}"
                raise UserError(f"{name}: {place}; offsets must refer to this text")
    sentences = request.sentences or sentence_offsets(text, list(request.paragraphs) or None)  # split if unknown
    spans = [(0, len(text)), *sentences]  # text may begin before the first sentence; below: first visible characters
    return sorted({end - len(text[start:end].lstrip()) for start, end in spans if text[start:end].strip()})


def edu_features(
    request: Request, subwords: Subwords | None = None, edus: Sequence[Span] = (), name: str = "text"
) -> EduFeatures:
    """Return the features of a text; `name` is its id.

    Without `subwords`, the tokenizer of an encoder, words only have hashed features. `edus` are gold EDUs (elementary
    discourse units) for training; an EDU that begins inside a word tags that word.

    Raises:
        UserError: if a sentence, paragraph or EDU lies outside the text.
    """
    text = request.text
    offsets, hashes = hashed_words(text)
    word_starts = [start for start, _ in offsets]
    num_words = len(word_starts)
    starts = sentence_starts(request, name)  # first visible characters of sentences
    # the first word that begins at or after the first character of a sentence or paragraph
    sentence_words = {bisect_left(word_starts, start) for start in starts}
    first_words = sorted(word for word in sentence_words if word < num_words)  # no word follows a later start
    paragraphs = request.paragraphs or paragraph_offsets(text)
    ids, subword_offsets = ([], []) if subwords is None else subwords(text)  # of P subwords (pieces)
    # the last word that begins at or before the subword; -1 for one without visible characters, whose offsets are empty
    piece_words = [bisect_right(word_starts, start) - 1 if start < end else -1 for start, end in subword_offsets]
    tags = torch.zeros(num_words, dtype=torch.long)  # 1 where an EDU begins
    for start, _ in edus:
        if not 0 <= start < len(text):
            raise UserError(f"{name}: an EDU begins at character {start} of a text of {len(text)}")
        if word_starts:  # the last word that begins at or before the EDU, or else the first one
            tags[max(0, bisect_right(word_starts, start) - 1)] = 1
    begins_sentence = torch.zeros(num_words, dtype=torch.bool)
    begins_sentence[first_words] = True
    lengths = [end - first for first, end in zip(first_words, [*first_words[1:], num_words])]  # words of each sentence
    paragraph_words = {bisect_left(word_starts, start) for start, _ in paragraphs}  # the first word of each
    return EduFeatures(
        id=name,
        digest=text_digest(text),
        offsets=offsets,
        words=torch.tensor(hashes, dtype=torch.long).reshape(-1, FEATURES),
        layout=_layout(text, offsets, lengths, paragraph_words),
        chains=[part for length in lengths for part in _chain_lengths(length)],  # sentences, long ones in parts
        begins=begins_sentence,
        starts=starts,
        pieces=torch.tensor(ids, dtype=torch.long),
        piece_words=torch.tensor(piece_words, dtype=torch.long),
        tags=tags,
    )


def _chain_lengths(length: int) -> list[int]:
    """Return lengths of the chains (parts tagged separately) of a sentence, as few and equal as `MAX_CHAIN` allows."""
    num_chains = math.ceil(length / MAX_CHAIN)
    shortest, num_longer = divmod(length, num_chains)  # the first chains have one word more
    return [shortest + 1] * num_longer + [shortest] * (num_chains - num_longer)


def _layout(text: str, offsets: list[Span], sentence_lengths: list[int], paragraph_starts: set[int]) -> Tensor:
    """Return each word's place in its sentence and paragraph (`EduFeatures.layout`); starts are indices of words."""
    lengths = torch.tensor(sentence_lengths, dtype=torch.long)
    length = lengths.repeat_interleave(lengths)  # of each word's sentence, [N]
    position = torch.arange(len(offsets)) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)  # in its sentence
    starts_paragraph = torch.tensor([word in paragraph_starts for word in range(len(offsets))])
    after_space = torch.tensor([start == 0 or text[start - 1].isspace() for start, _ in offsets])  # not punctuation
    # longer distances and sentences count as 20 and 60 words, so that all features are in [0, 1]
    distances = (position.clamp(max=20) / 20, (length - 1 - position).clamp(max=20) / 20, length.clamp(max=60) / 60)
    flags = (position == 0, starts_paragraph, after_space)
    return torch.stack([feature.float() for feature in (*flags, *distances)], 1)             # [N, LAYOUT]


@dataclass
class SegmentationBatch(Batch):
    """Concatenated `EduFeatures` of texts: N words, P subwords, and C chains (sentences or parts) of up to T words."""

    words: Tensor  # [N, FEATURES]
    word_counts: list[int]  # number of words of each text
    layout: Tensor  # [N, LAYOUT]
    pieces: Tensor  # [P]
    piece_counts: list[int]  # number of subwords of each text
    piece_words: Tensor  # index of the word that each subword belongs to, -1 for none, [P]
    rows: Tensor  # indices of the words of each chain, padded with 0, [C, T]
    lengths: Tensor = on_host()  # number of words of each chain, [C], in host memory
    begins: Tensor  # True at the first word of each sentence, [N]
    tags: Tensor  # 1 where an EDU begins, [N]
    texts: list[EduFeatures] = field(default_factory=list)  # features of the texts

    @classmethod
    def of(cls, texts: list[EduFeatures]) -> Self:
        """Concatenate the features of texts, which must have at least one word in total."""
        shifts = accumulate((len(text.offsets) for text in texts), initial=0)  # number of words before each text
        piece_words = []  # index in the batch of the word of each subword, -1 for none
        for text, shift in zip(texts, shifts):
            piece_words.append(torch.where(text.piece_words < 0, text.piece_words, text.piece_words + shift))
        lengths = torch.tensor([length for text in texts for length in text.chains])  # [C]
        chains = torch.arange(int(lengths.sum())).split(lengths.tolist())  # indices of the words of each chain
        return cls(
            ids=[text.id for text in texts],
            references=[[] for _ in texts],  # none, since a segmenter does not summarize
            words=torch.cat([text.words for text in texts]),
            word_counts=[len(text.offsets) for text in texts],
            layout=torch.cat([text.layout for text in texts]),
            pieces=torch.cat([text.pieces for text in texts]),
            piece_counts=[len(text.pieces) for text in texts],
            piece_words=torch.cat(piece_words),
            rows=pad_sequence(chains, batch_first=True),  # 0 at padding, [C, T]
            lengths=lengths,
            begins=torch.cat([text.begins for text in texts]),
            tags=torch.cat([text.tags for text in texts]),
            texts=texts,
        )
