"""A chat model's score as a reward for self-critical training, with a cache of answers and a budget of requests."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import shorten
from lightning_modules.metrics.rewards import Reward, RewardInputs
from precis.baselines.answers_file import open_answers
from precis.baselines.endpoint import Endpoint
from precis.files.texts import read_text
from precis.summarizing.prompts import answer_text, check_fields, fill

PROMPT = Path(__file__).with_name("chat_reward_prompt.txt")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*\d+)?")  # the 8 of "8/10"


class ChatReward(Reward):
    """Score of a text, given its document, by a chat model: the number in its answer divided by `best`, in [0, 1].

    The number, 8 for "8/10", is on the last line of the answer that has a number. An answer without a number, or with
    several on that line, as when it repeats the question, counts 0, with a warning. Answers are appended to a file, so
    that a text is asked about once, in all epochs and resumed runs. The command line may name this class, but a config
    file only with `--trust`, because documents and the API key are sent to the address.

    Args:
        model: name of the chat model at the endpoint.
        base_url: address of the endpoint, such as http://localhost:8000/v1.
        answers: file of answers; each rank above 0 has its own, with the rank in its name.
        budget: number of requests of each rank after which training stops; answers already in its file count, too.
        prompt: file of a prompt with {document} and {summary}; by default one that asks for a number from 0 to 10.
        best: the highest score that the prompt offers, which becomes the reward 1.
        max_tokens: maximum number of tokens of an answer.
        request: further fields of each request, such as seed; null leaves a field out.
        concurrency: number of concurrent requests.
        timeout: time limit of each request in seconds.
        retries: number of retries after transient errors.
        key_variable: environment variable with the API key.

    Raises:
        UserError: if address or prompt are invalid, the file has other settings, the budget is spent, or requests fail.
    """

    reads_source = True
    name = "chat"

    def __init__(
        self,
        model: str,
        base_url: str,
        answers: Path,
        budget: PositiveInt = 10_000,
        prompt: Path | None = None,
        best: PositiveFloat = 10.0,
        max_tokens: PositiveInt = 16,
        request: dict[str, Any] | None = None,
        concurrency: PositiveInt = 8,
        timeout: PositiveFloat = 60.0,
        retries: NonNegativeInt = 5,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        connection = {"concurrency": concurrency, "timeout": timeout, "retries": retries, "key_variable": key_variable}
        sampling = {"max_tokens": max_tokens, "request": request or {}}
        # max_failures=1: a text without a reward stops training, which can be resumed, instead of counting as 0
        self.endpoint = Endpoint(Namespace(model=model, base_url=base_url, max_failures=1, **connection, **sampling))
        self.prompt = read_text(Path(prompt) if prompt else PROMPT)
        check_fields(str(prompt or PROMPT), self.prompt, {"document": True, "summary": True})  # both required
        self.answers = Path(answers)
        self.budget = budget
        self.best = float(best)
        self.settings = {"model": model, "request": self.endpoint.request, "prompt": text_digest(self.prompt)}

    def __call__(self, inputs: RewardInputs) -> list[float]:
        """Return the reward of each text, in [0, 1]; only prompts without an answer in the file are sent."""
        pairs = zip(inputs.texts, inputs.sources, strict=True)
        filled = [fill(self.prompt, {"document": source, "summary": text}) for text, source in pairs]
        prompts = {text_digest(prompt): prompt for prompt in filled}  # each once: sampled summaries are often equal
        rank = rank_zero_only.rank
        path = self.answers if rank == 0 else self.answers.with_name(f"{self.answers.stem}.{rank}.jsonl")
        with open_answers(path, {"system": "reward"} | self.settings) as answers:  # "system": the kind of answers
            missing = [(digest, prompt) for digest, prompt in prompts.items() if digest not in answers.by_id]
            if len(answers.by_id) + len(missing) > self.budget:  # each rank has this budget
                problem = f"the budget of {self.budget:,} requests is used up after {len(answers.by_id):,}"
                raise UserError(f"{path}: {problem}; raise budget and resume the run")
            with ThreadPoolExecutor(1) as thread:  # the event loop would change signal handlers of the main thread
                request = thread.submit(
                    self.endpoint.answer_all, missing, lambda id, reply: answers.add([{"id": id, "text": reply.text}])
                )
                request.result()  # raises errors of the thread: one failed request is enough
            scores = {digest: self._score(answers.by_id[digest]["text"]) for digest in prompts}  # None: unreadable
        if unreadable := [answers.by_id[digest]["text"] for digest, score in scores.items() if score is None]:
            problem = f"{len(unreadable)} of {len(scores)} answers have no number up to {self.best:g} and count 0"
            rank_zero_warn(f"{path}: {problem}, such as {shorten(unreadable[0], 80)!r}; improve prompt or max_tokens")
        return [scores[text_digest(prompt)] or 0.0 for prompt in filled]

    def _score(self, answer: str) -> float | None:
        """Return the number on the last line that has any, divided by `best`; None if none, several or above `best`."""
        numbers_by_line = [numbers for line in answer_text(answer).split("\n") if (numbers := _NUMBER.findall(line))]
        if not numbers_by_line or len(numbers_by_line[-1]) > 1:  # no number, or several on the last line with numbers
            return None
        score = float(numbers_by_line[-1][0]) / self.best
        return score if score <= 1 else None
