"""Data of gap-sentence pre-training: plain documents, some sentences of which are masked and to be generated."""

import random
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from datamodules.corpora.corpus import Corpus, as_document
from datamodules.documents import Document, UserError
from datamodules.pretrained_summarizer import PretrainedSummarizerData
from datamodules.summarization import TEST
from datamodules.text.gap_selection import Selection, select

if TYPE_CHECKING:
    import datasets  # imported when documents are read: models only need the types of batches


def piece_boundaries(sizes: list[int], max_tokens: int) -> list[int]:
    """Split sentences of `sizes` tokens into pieces; return the index of the first sentence of each, and their number.

    Each piece is as long as possible. A sentence of more than `max_tokens` is a piece by itself. Any other piece of a
    single sentence takes a sentence from a neighboring piece of more than two, if it fits, as masking needs two.
    """
    boundaries, tokens = [0], 0
    for i, size in enumerate(sizes):
        if tokens and tokens + size > max_tokens:
            boundaries.append(i)
            tokens = 0
        tokens += size
    boundaries.append(len(sizes))
    for k in range(len(boundaries) - 1):
        start, end = boundaries[k], boundaries[k + 1]  # of piece k; the next one ends at `boundaries[k + 2]`
        if end - start > 1:  # one sentence can be a gap
            continue
        if k and start - boundaries[k - 1] > 2 and sum(sizes[start - 1 : end]) <= max_tokens:
            boundaries[k] -= 1  # takes the last sentence of the piece before
        elif k + 2 < len(boundaries) and boundaries[k + 2] - end > 2 and sum(sizes[start : end + 1]) <= max_tokens:
            boundaries[k + 1] += 1  # takes the first sentence of the piece after
    return boundaries


class GapSentenceData(PretrainedSummarizerData):
    """Documents with masked gap sentences, which are the pseudo-summaries (Zhang et al. 2020, section 3.1).

    Gap sentences are selected by `gap_selection.select`; each is replaced by a mask, and the target is all of them in
    the order of the document. References of the corpus are not read; gap sentences are the references of validation and
    test. Documents of more than `max_source` tokens are split into pieces of whole sentences, each of which is an
    example with the id `DOCUMENT#NUMBER`. At least one sentence of a piece is selected and one is not. A piece of a
    single sentence has no gap: training and validation leave it out with a warning, test keeps it without target.

    Random choices depend only on `draw_seed` and the id of the piece.

    Args:
        ratio: fraction of the sentences of a piece to select, rounded.
        max_ratio: if set, the fraction is drawn for each piece between `ratio` and `max_ratio`; 0.15 to 0.45 in the
            paper's last models ("mixed, stochastic").
        selection: `ind-orig`, `ind-uniq`, `seq-orig`, `seq-uniq`, `random` or `lead`.
        unchanged: probability that a selected sentence is not masked; 0.2 in the released models.
        noise: scores of sentences are multiplied by 1 + u, u uniform in [-noise, noise]; 0.2 in these models.
        draw_seed: seed of the random choices.
        shared: arguments of `PretrainedSummarizerData`.

    Raises:
        ValueError: if an argument is out of bounds.
    """

    needs_references = False

    def __init__(
        self,
        corpus: Corpus,
        ratio: float = 0.3,
        max_ratio: float | None = None,
        selection: Selection = "ind-orig",
        unchanged: float = 0.0,
        noise: float = 0.0,
        draw_seed: int = 0,
        max_target: int = 256,
        **shared: Any,
    ) -> None:
        super().__init__(corpus, max_target=max_target, **shared)
        if not 0 < ratio <= (ratio if max_ratio is None else max_ratio) < 1:
            raise ValueError(f"data.ratio is between 0 and 1, max_ratio not below it; got {ratio}, {max_ratio}")
        if not (0 <= unchanged <= 1 and 0 <= noise <= 1):
            raise ValueError(f"data.unchanged and data.noise are between 0 and 1; got {unchanged}, {noise}")
        self.ratio = ratio
        self.max_ratio = max_ratio
        self.selection = selection
        self.unchanged = unchanged
        self.noise = noise
        self.draw_seed = draw_seed
        select([], 0, selection)  # raises an error if there is no such selection

    def truncation_limits(self) -> dict[str, str]:  # count -> the option that limits it, for reports
        # Documents are split into pieces; only sentences that are longer than the encoder can read are truncated.
        limits = super().truncation_limits()
        return {name: limits[name] for name in ("source_tokens", "target_tokens")}

    def feature_settings(self) -> dict[str, Any]:  # what `encode` depends on, for the cache key
        names = ("ratio", "max_ratio", "selection", "unchanged", "noise", "draw_seed")
        return super().feature_settings() | {"version": 3} | {name: getattr(self, name) for name in names}

    def on_new_features(self, split: str) -> None:
        """Leave out pieces without a gap, except in `test`, and warn; raise a `UserError` if no piece has a gap."""
        pieces = self._features[split]
        has_gap = np.asarray(pieces["gaps"][:]) > 0  # `gaps` is the number of gaps of a piece
        if split == TEST or has_gap.all():
            return
        if not has_gap.any():
            raise UserError(f"{split}: no document has two sentences; gap sentences need one to mask and one to keep")
        gapless = np.flatnonzero(~has_gap)
        examples = ", ".join(pieces[int(i)]["id"] for i in gapless[:3]) + (", ..." if len(gapless) > 3 else "")
        problem = f"left out {len(gapless)} of {len(pieces)} pieces of a single sentence: {examples}"
        warnings.warn(f"gap sentences, {split}: {problem}", stacklevel=2)
        self._features[split] = pieces.select(np.flatnonzero(has_gap))

    def scored_documents(self, split: str) -> Iterator[Document]:
        """Yield what summaries are scored against: pieces without their gap sentences, and these as the reference."""
        gaps = {row["id"]: row["references"] for row in self.features(split).select_columns(["id", "references"])}
        for document in super().scored_documents(split):
            for piece in self.pieces(document):
                if piece.id in gaps:
                    left_out = {sentence for reference in gaps[piece.id] for sentence in reference}
                    parts = [[sentence for sentence in part if sentence not in left_out] for part in piece.parts]
                    yield Document(piece.id, parts, gaps[piece.id])

    def encode_all(self, documents: "datasets.Dataset", **caching: Any) -> "datasets.Dataset":
        """Return a table of features with a row for each piece; `caching` are arguments of `Dataset.map`.

        Raises:
            UserError: if the tokenizer has no mask symbol.
        """
        if self.tokenizer.mask is None:
            raise UserError("model.encoder.checkpoint: its tokenizer has no mask; name one of PEGASUS, BART or T5")
        encode = partial(_encode_rows, self._for_workers())  # a copy without trainer, corpus and datasets, to pickle
        columns = documents.column_names  # all are replaced, as a batched function returns another number of rows
        return documents.map(encode, batched=True, batch_size=64, remove_columns=columns, **caching)

    def tokens_and_sentences(self, document: Document) -> tuple[list[int], list[int]]:
        """Return the ids of tokens, and the index of each token's sentence; space belongs to the sentence after it."""
        ids, offsets = self.tokenizer(document.text)  # offsets are (start, end) in characters
        ends = document.sentence_ends  # in characters; by `min`, white space after the last sentence belongs to it
        return ids, [min(bisect_left(ends, end), len(ends) - 1) for _, end in offsets]

    def pieces(self, document: Document) -> Iterator[Document]:
        """Yield pieces of a document, of whole sentences, that the encoder can read; a short document is one piece."""
        ids, sentence_of_token = self.tokens_and_sentences(document)
        if len(ids) <= self.room:  # number of tokens that fit besides special symbols and prefix
            yield document
            return
        sizes = np.bincount(sentence_of_token, minlength=len(document.sentences)).tolist()  # tokens of each sentence
        sentences = [(index, text) for index, part in enumerate(document.parts) for text in part]  # (part, sentence)
        for number, (start, end) in enumerate(pairwise(piece_boundaries(sizes, self.room)), start=1):
            parts = groupby(sentences[start:end], key=lambda pair: pair[0])  # the sentences of a piece in each part
            yield Document(f"{document.id}#{number}", [[text for _, text in part] for _, part in parts])

    def encode(self, document: Document) -> dict[str, Any]:
        """Return the features of a piece of a document; one mask symbol replaces each masked sentence."""
        rng = random.Random(f"{self.draw_seed} {document.id}")
        sentences = document.sentences
        ratio = self.ratio if self.max_ratio is None else rng.uniform(self.ratio, self.max_ratio)
        number = max(1, round(ratio * len(sentences)))  # of gaps; at least one, if the next line allows it
        number = max(0, min(number, len(sentences) - 1))  # leave a sentence to read; 0 for a single sentence, or none
        chosen = select(sentences, number, self.selection, self.noise, rng, self.language.code)
        masked = {i for i in chosen if rng.random() >= self.unchanged}  # the other chosen ones stay in the source
        ids, sentence_of_token = self.tokens_and_sentences(document)
        source = []  # below, `previous` is the sentence of the token before, -1 for none
        for previous, sentence, token in zip([-1, *sentence_of_token], sentence_of_token, ids):
            if sentence not in masked:
                source.append(token)
            elif sentence != previous:  # the first token of a masked sentence
                source.append(self.tokenizer.mask)
        gaps = [sentences[i] for i in chosen]
        target, _ = self.tokenizer(" ".join(gaps))  # ids
        features = {"id": document.id, "references": [gaps] if gaps else [], "gaps": len(gaps)}
        return features | self.framed(source, target)  # adds source, target, length and counts of truncation


def _encode_rows(data: GapSentenceData, rows: dict[str, list]) -> dict[str, list]:
    """Encode the pieces of a batch of documents; `rows` and the result map each column to the list of its values."""
    documents = (as_document(dict(zip(rows, row))) for row in zip(*rows.values()))
    encoded = [data.encode(piece) for document in documents for piece in data.pieces(document)]
    return {name: [row[name] for row in encoded] for name in encoded[0]}
