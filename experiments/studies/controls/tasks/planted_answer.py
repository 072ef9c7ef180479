"""Rewards of control corpora, whose correct answers are known."""

import re

from datamodules.text.rouge_counts import count, score_of
from experiments.studies.controls.tasks.planted_names import planted_answer
from lightning_modules.metrics.rewards import Reward, RewardInputs


class PlantedAnswer(Reward):
    """F1 of the longest common subsequence of a summary and the answer planted in a document of `PlantedNames`.

    Full stops count as words.

    References are not read, so that flaws of theirs do not count.
    """

    reads_source = True

    def __call__(self, inputs: RewardInputs) -> list[float]:
        numbers: dict[str, int] = {}

        def ids(text: str) -> list[int]:
            return [numbers.setdefault(token, len(numbers)) for token in re.findall(r"\w+|\.", text.lower())]

        rewards = []
        for text, source in zip(inputs.texts, inputs.sources, strict=True):
            counts = count(["rougeL"], [ids(text)], [ids(planted_answer(source))])["rougeL"]
            rewards.append(score_of(*counts).fmeasure)
        return rewards
