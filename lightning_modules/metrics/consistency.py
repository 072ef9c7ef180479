"""Factual consistency by classifiers of a source and a claim, such as AlignScore and MiniCheck."""

import re
from collections.abc import Sequence

import torch

from lightning_modules.metrics.pair_classifier import PairClassifier

Sentences = Sequence[str]

CHUNK_WORDS = 350  # of a source, as in AlignScore
_SUPPORTED = re.compile(r"entail|support|consisten|align|faithful|factual")
_NEGATED = re.compile(r"\b(not|non|no)\b|inconsisten|unsupport|unfaithful|unfactual|nonfactual|misalign|hallucinat")


class ConsistencyModel(PairClassifier):
    """Hugging Face classifier of whether a source supports a claim, such as lytang/MiniCheck-RoBERTa-Large.

    Raises:
        ValueError: if it is not clear which class means that the source supports the claim.
    """

    truncation = "only_first"  # claims stay whole

    def __init__(self, name: str, batch_size: int = 64, device: str | torch.device = "cpu") -> None:
        super().__init__(name, batch_size, device)
        self.supported = _supported_class(self.class_names, name)

    def scores(self, summaries: Sequence[Sentences], sources: Sequence[Sentences]) -> list[float]:
        """Return the mean over summary sentences of the highest P(supported) by a chunk of the source, in [0, 1].

        A chunk is a run of whole sentences of at most 350 words. Summaries without a sentence score 0.

        Raises:
            ValueError: if the lengths differ.
        """
        claims = [[sentence for sentence in summary if sentence.strip()] for summary in summaries]
        chunks = [source_chunks(source) for source in sources]
        supported = [matrix[..., self.supported] for matrix in self.pair_matrices(chunks, claims)]
        return [float(matrix.amax(0).mean()) if matrix.numel() else 0.0 for matrix in supported]


def source_chunks(sentences: Sentences, most: int = CHUNK_WORDS) -> list[str]:
    """Return runs of whole sentences with at most `most` words; a longer sentence is a chunk of its own."""
    chunks: list[list[str]] = []
    words = 0
    for sentence in sentences:
        count = len(sentence.split())
        if count and chunks and words + count <= most:
            chunks[-1].append(sentence)
            words += count
        elif count:
            chunks.append([sentence])
            words = count
    return [" ".join(chunk) for chunk in chunks]


def _supported_class(class_names: Sequence[str], name: str) -> int:
    """Return the index of the class of supported claims; the second of two without names, as in MiniCheck."""
    if len(class_names) == 1 or [label.upper() for label in class_names] == ["LABEL_0", "LABEL_1"]:
        return 1
    labels = [label.lower().replace("_", " ") for label in class_names]
    matches = [index for index, label in enumerate(labels) if _SUPPORTED.search(label) and not _NEGATED.search(label)]
    if len(matches) != 1:
        raise ValueError(
            f"{name}: which class is a supported claim? Its config says {', '.join(class_names)}; rename it to "
            "supported in `id2label`"
        )
    return matches[0]
