"""Hugging Face classifiers of text pairs, and factual consistency by them, such as AlignScore and MiniCheck."""

import re
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from datamodules.text.language import join_sentences, length_words
from lightning_modules.networks.text_encoder import max_positions


class PairClassifier:
    """Hugging Face classifier of text pairs, loaded by its name or folder; device "auto" is a GPU if there is one.

    Not an `nn.Module`, so that its weights are neither trained nor part of checkpoints of a metric.
    """

    def __init__(self, name: str, batch_size: int = 64, device: str | torch.device = "cpu") -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForSequenceClassification.from_pretrained(name).eval().to(device)
        self.batch_size = batch_size
        # 512 if neither the tokenizer (a huge number) nor the model (None) has a limit
        self.max_length = min(512, self.tokenizer.model_max_length, max_positions(self.model.config) or 512)
        self.class_names = [self.model.config.id2label[index] for index in range(self.model.config.num_labels)]

    @torch.no_grad()
    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Return class probabilities of N pairs, [N, classes], on the CPU; a model with one output counts as two."""
        result = torch.zeros(len(pairs), max(2, len(self.class_names)))
        # pairs of similar length are batched, so that there is little padding
        by_length = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]) + len(pairs[index][1]))
        # "longest_first": of a pair that is too long, the longer text is truncated, both if each exceeds half the limit
        options = {"truncation": "longest_first", "max_length": self.max_length, "return_tensors": "pt"}
        for start in range(0, len(pairs), self.batch_size):
            batch = by_length[start : start + self.batch_size]
            firsts, seconds = ([pairs[index][side] for index in batch] for side in (0, 1))
            inputs = self.tokenizer(firsts, seconds, padding=True, **options)
            logits = self.model(**inputs.to(self.model.device)).logits.float()
            if logits.shape[1] == 1:  # softmax(0, x) = (1 - sigmoid(x), sigmoid(x))
                logits = torch.cat([torch.zeros_like(logits), logits], 1)
            result[batch] = logits.softmax(-1).cpu()
        return result

    def pair_matrices(self, firsts: Sequence[Sequence[str]], seconds: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return class probabilities of all pairs of M first and N second texts, for each document, [M, N, classes]."""
        pairs = [pair for document in zip(firsts, seconds, strict=True) for pair in product(*document)]
        shapes = [(len(first_texts), len(second_texts)) for first_texts, second_texts in zip(firsts, seconds)]
        # the pairs of all documents are classified together, in full batches
        by_document = self.probabilities(pairs).split([m * n for m, n in shapes])            # [M N, classes] each
        return [probabilities.unflatten(0, shape) for probabilities, shape in zip(by_document, shapes)]


Sentences = Sequence[str]

CHUNK_WORDS = 350  # maximum number of words in a chunk of a source, as in AlignScore
_SUPPORTED = re.compile(r"entail|support|consisten|align|faithful|factual")
NEGATED = re.compile(r"\b(not|non|no)\b|inconsisten|unsupport|unfaithful|unfactual|nonfactual|misalign|hallucinat")


class ConsistencyModel(PairClassifier):
    """Hugging Face classifier of whether a source supports a claim, such as lytang/MiniCheck-RoBERTa-Large.

    Raises:
        ValueError: if it is not clear which class means that the source supports the claim.
    """

    def __init__(self, name: str, batch_size: int = 64, device: str | torch.device = "cpu") -> None:
        super().__init__(name, batch_size, device)
        self.supported = _supported_class(self.class_names, name)

    def scores(self, summaries: Sequence[Sentences], sources: Sequence[Sentences]) -> list[float]:
        """Return the mean over summary sentences of the highest P(supported) by a chunk of the source, in [0, 1].

        A chunk is a run of whole sentences of at most 350 words (see `length_words`), as in AlignScore. Summaries
        without a sentence score 0. Raises a `ValueError` if the lengths differ.
        """
        claims = [without_blank(summary) for summary in summaries]
        chunks = [source_chunks(source) for source in sources]
        supported = [matrix[..., self.supported] for matrix in self.pair_matrices(chunks, claims)]  # [chunks, claims]
        return [float(matrix.amax(0).mean()) if matrix.numel() else 0.0 for matrix in supported]


def without_blank(sentences: Sentences) -> list[str]:
    return [sentence for sentence in sentences if sentence.strip()]


def source_chunks(sentences: Sentences, most: int = CHUNK_WORDS) -> list[str]:  # 350 words, as in AlignScore
    """Return runs of whole sentences with at most `most` words; a longer sentence is a chunk by itself."""
    chunks: list[list[str]] = []
    chunk_words = 0  # number of words of the last chunk
    for sentence in sentences:
        num_words = len(length_words(sentence))
        if num_words and chunks and chunk_words + num_words <= most:
            chunks[-1].append(sentence)
            chunk_words += num_words
        elif num_words:  # blank sentences are left out
            chunks.append([sentence])
            chunk_words = num_words
    return [join_sentences(chunk) for chunk in chunks]


def _supported_class(class_names: Sequence[str], name: str) -> int:
    """Return the index of the class whose name means that a claim is supported; `name`: of the model, for the error."""
    # of two unnamed classes, or the two that `probabilities` makes of a single logit, the second one means supported
    if len(class_names) == 1 or [label.upper() for label in class_names] == ["LABEL_0", "LABEL_1"]:
        return 1
    labels = [label.lower().replace("_", " ") for label in class_names]
    matches = [index for index, label in enumerate(labels) if _SUPPORTED.search(label) and not NEGATED.search(label)]
    if len(matches) != 1:
        raise ValueError(
            f"{name}: which class is a supported claim? Its config says {', '.join(class_names)}; rename it to "
            "supported in `id2label`"
        )
    return matches[0]
