"""Hugging Face classifiers of text pairs, such as a premise and a hypothesis, or a source and a claim."""

from collections.abc import Sequence

import torch
from torch import Tensor


class PairClassifier:
    """Classifier of text pairs by its name, or a folder; batched by length, "auto" takes a GPU if available.

    Not an `nn.Module`, so that its weights are neither trained nor part of checkpoints of a metric.
    """

    truncation = "longest_first"  # of a pair that is too long, the longer text is truncated

    def __init__(self, name: str, batch_size: int = 64, device: str | torch.device = "cpu") -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModelForSequenceClassification.from_pretrained(name).eval().to(device)
        self.name, self.batch_size, self.device = name, batch_size, torch.device(device)
        self.max_length = min(512, self.tokenizer.model_max_length)
        # what its config calls the classes
        self.class_names = [self.model.config.id2label[index] for index in range(self.model.config.num_labels)]

    @torch.no_grad()
    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Return P of each class for (first, second) pairs, [N, classes], on the CPU.

        A model with one output is a classifier of two classes, whose second probability is the output's sigmoid.
        """
        result = torch.zeros(len(pairs), max(2, len(self.class_names)))
        by_length = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]) + len(pairs[index][1]))
        for start in range(0, len(pairs), self.batch_size):
            batch = by_length[start : start + self.batch_size]
            inputs = self.tokenizer(
                [pairs[index][0] for index in batch],
                [pairs[index][1] for index in batch],
                padding=True,
                truncation=self.truncation,
                max_length=self.max_length,
                return_tensors="pt",
            )
            logits = self.model(**inputs.to(self.device)).logits.float()
            if logits.shape[1] == 1:
                logits = torch.cat([torch.zeros_like(logits), logits], 1)
            result[batch] = logits.softmax(-1).cpu()
        return result

    def pair_matrices(self, firsts: Sequence[Sequence[str]], seconds: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return `probabilities` of all pairs of M first and N second sentences of each document, [M, N, classes]."""
        pairs = [
            (first, second)
            for of_first, of_second in zip(firsts, seconds, strict=True)
            for first in of_first
            for second in of_second
        ]
        shapes = [(len(of_first), len(of_second)) for of_first, of_second in zip(firsts, seconds)]
        parts = self.probabilities(pairs).split([m * n for m, n in shapes])
        return [part.unflatten(0, shape) for part, shape in zip(parts, shapes)]
