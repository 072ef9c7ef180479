"""Rewards of control corpora, whose correct answers are known."""

import re

from experiments.studies.controls.tasks.planted_names import planted_answer
from lightning_modules.metrics.rewards import Reward, RewardInputs, rouge_l_ids


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

        answers = [ids(planted_answer(source)) for source in inputs.sources]
        return [score.fmeasure for score in rouge_l_ids([ids(text) for text in inputs.texts], answers)]
