"""`precis judge`: two systems compared by a chat model that sees each pair of summaries in both orders."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jsonargparse import ArgumentParser, Namespace

from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import counted, shorten
from precis.baselines.answers_file import check_settings, open_answers, read_answers
from precis.baselines.baseline_files import name_documents
from precis.baselines.endpoint import Endpoint, add_endpoint_arguments
from precis.evaluation.predictions import read_predictions, with_run_documents
from precis.files.templates import template
from precis.files.texts import read_text
from precis.statistics.statistics import LEVEL, RESAMPLES, bootstrap_interval
from precis.summarizing.prompts import answer_text, check_fields, fill

PROMPT = Path(__file__).with_name("judge_prompt.txt")
Verdict = Literal["first", "second", "tie"]
# Matches the whole last line of an answer: "1", "**Summary 2**", "Answer: tie."
_VERDICT = re.compile(r"\W*(?:(?:final|answer|verdict|summary)\W*)*(1|2|tie)\W*", re.IGNORECASE)
_VERDICTS: dict[str, Verdict] = {"1": "first", "2": "second", "tie": "tie"}
_PREFERENCES: dict[Verdict, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}  # for the summary that came first


class _Pair(NamedTuple):
    """A document and its two summaries."""

    id: str
    document: str
    a: str  # summary by system A
    b: str  # summary by system B

    def prompts(self, template: str) -> Iterator[tuple[str, str]]:
        """Yield (id, prompt) for both orders, with ids such as `ab doc-1`; nothing for equal summaries."""
        orders = {"ab": (self.a, self.b), "ba": (self.b, self.a)} if self.a != self.b else {}
        for order, (first, second) in orders.items():
            yield f"{order} {self.id}", fill(template, {"document": self.document, "first": first, "second": second})


def judge(arguments: list[str]) -> None:
    """`precis judge A B --base_url URL --model NAME --out FILE`: which of two systems a chat model prefers.

    Each pair of summaries is judged twice, with either one first. All answers are kept in FILE: a killed command goes
    on where it was, and without --base_url the result is computed again from the file alone.
    """
    options = _parser().parse_args(arguments)
    pairs = _read(options)
    path = Path(options.out)
    prompt = _template(options.prompt)
    if path.suffix != ".jsonl":
        raise UserError(f"--out {path}: answers are JSON Lines; name a file that ends in .jsonl")
    settings = {"pairs": text_digest(json.dumps(pairs))[:16], "prompt": prompt}  # 64 bits identify the texts
    failures: dict[str, str] = {}  # why requests failed, by id of the prompt
    if options.base_url is None:
        recorded, answers = read_answers(path)
        check_settings(path, {name: recorded.get(name) for name in settings}, settings)  # the model may differ
    else:
        answers, failures = _request_missing(options, pairs, prompt, settings)
    missing = [prompt_id for pair in pairs for prompt_id, _ in pair.prompts(prompt) if prompt_id not in answers]
    if missing:
        reason = failures.get(missing[0], "it was never asked for")
        remedy = "run the command with --base_url and --model again"
        lacking = counted(len(missing), "answer")
        raise UserError(f"{path}: {lacking} missing, the first {missing[0]!r}: {reason}; {remedy}")
    result = summarize(pairs, {prompt_id: answer["text"] for prompt_id, answer in answers.items()})
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        unreadable = name_documents(result["unreadable"], "documents without a readable verdict, left out")
        same = counted(result["same_summaries"], "pair")
        values = {"a": options.a, "b": options.b, "path": path, "named": unreadable, "same": same}
        print(template("precis.baselines", "judged.txt").render(result, **values))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis judge", description=judge.__doc__, exit_on_error=False)
    parser.add_argument("a", type=str, help="predictions of system A, such as RUN/predictions.jsonl")
    parser.add_argument("b", type=str, help="predictions of system B for the same documents")
    parser.add_argument("--out", type=str, required=True, help="file of the answers, such as judged.jsonl")
    add_endpoint_arguments(parser)
    parser.add_argument("--model", type=str | None, default=None, help="name of the judge at the endpoint")
    parser.add_argument("--documents", type=str | None, default=None, help="a file with the sources")  # if A lacks them
    parser.add_argument("--run", type=str | None, default=None, help="a run folder whose corpus has the sources")
    parser.add_argument("--split", type=str, default="test", help="the split of the run's corpus")
    parser.add_argument("--prompt", type=str | None, default=None, help="a file with {document}, {first} and {second}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    return parser


def _read(options: Namespace) -> list[_Pair]:
    """Return the two summaries of each document, with its text; a `UserError` without texts, or if documents differ."""
    documents = Path(options.documents) if options.documents else None
    a, b = read_predictions(Path(options.a), documents=documents), read_predictions(Path(options.b))  # a has sources
    if options.run:
        a = with_run_documents(a, options.run, options.split)
    a_by_id = {prediction.id: prediction for prediction in a}
    b_by_id = {prediction.id: prediction for prediction in b}
    for path, by_id, others in ((options.b, b_by_id, a_by_id), (options.a, a_by_id, b_by_id)):
        if lacking := [document_id for document_id in others if document_id not in by_id]:
            raise UserError(f"{path}: no summary of document {lacking[0]!r}; give two systems on the same documents")
    if a[0].document is None:  # `read_predictions` has checked that all have a document text, or none
        raise UserError(f"{a[0].where}: there is no source of this document; add --documents FILE or --run RUN")
    summaries = {name: ("\n".join(a_by_id[name].summary), "\n".join(b_by_id[name].summary)) for name in a_by_id}
    return [_Pair(prediction.id, " ".join(prediction.document), *summaries[prediction.id]) for prediction in a]


def _template(path: str | None) -> str:
    """Return the text of the prompt file, by default `PROMPT`; a `UserError` if it lacks the text or a summary."""
    if path is not None and not Path(path).is_file():
        raise UserError(f"--prompt {path}: no such file; give one with {{document}}, {{first}} and {{second}}")
    template = read_text(Path(path) if path else PROMPT)
    check_fields(str(path), template, {"document": True, "first": True, "second": True})  # True: required
    return template


def _request_missing(
    options: Namespace, pairs: Sequence[_Pair], template: str, settings: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Request the answers that the file `--out` lacks; return all answers, and why requests failed, by prompt id."""
    if options.model is None:
        raise UserError("--model: name the judge at the endpoint")
    endpoint = Endpoint(options)
    prompts = [prompt for pair in pairs for prompt in pair.prompts(template)]  # (id, text)
    settings = {"system": "judge", "model": options.model, "request": endpoint.request} | settings
    with open_answers(Path(options.out), settings) as answers:  # refuses a file with other settings
        failures = endpoint.request_missing(prompts, answers, len(prompts))
        return answers.by_id, failures


def read_verdict(text: str) -> Verdict | None:
    """Return the verdict, which is the whole last nonblank line of an answer: 1, 2 or tie; None if it is not."""
    lines = [line for line in answer_text(text).split("\n") if line.strip()]
    match = _VERDICT.fullmatch(lines[-1]) if lines else None
    return _VERDICTS[match[1].lower()] if match else None


def summarize(pairs: Sequence[_Pair], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return how often A is preferred, and how consistent the judge is.

    The preference for A on a document is the mean over both orders of 1 if A wins, 0 if B wins, and 1/2 for a tie;
    identical summaries are a tie. Documents with an unreadable answer are excluded and listed. `texts` has the answers
    by order and document id, such as `ab doc-1`. A `UserError` if no document has a readable verdict in both orders.
    """
    verdicts = {name: read_verdict(text) for name, text in texts.items()}
    for_a: dict[str, tuple[float, float]] = {}  # preference for A with A first and with B first, by document id
    for pair in pairs:
        ab, ba = ("tie", "tie") if pair.a == pair.b else (verdicts[f"ab {pair.id}"], verdicts[f"ba {pair.id}"])
        if ab is not None and ba is not None:
            for_a[pair.id] = _PREFERENCES[ab], 1 - _PREFERENCES[ba]  # `_PREFERENCES` rates the summary shown first
    if texts and not any(pair.id in for_a for pair in pairs if pair.a != pair.b):  # no texts: no pair differs
        example = shorten(next(text for name, text in texts.items() if verdicts[name] is None), 80)
        remedy = "change --prompt so that each answer ends with 1, 2 or tie"
        raise UserError(f"no document has a readable verdict in both orders, but for example {example!r}; {remedy}")
    table = np.array(list(for_a.values()))  # preferences for A on N documents in 2 orders, [N, 2]
    preferences = table.mean(axis=1)  # [N]
    interval = bootstrap_interval(100 * preferences)  # mean and bounds in percent
    decided = [verdict for verdict in verdicts.values() if verdict in ("first", "second")]
    return {
        "documents": len(pairs),
        "preference": interval._asdict() | {"level": LEVEL, "resamples": RESAMPLES, "seed": 0},
        "a_better": int((preferences > 0.5).sum()),
        "ties": int((preferences == 0.5).sum()),
        "b_better": int((preferences < 0.5).sum()),
        "same_summaries": sum(pair.a == pair.b for pair in pairs),
        "orders_agree": 100 * float((table[:, 0] == table[:, 1]).mean()),  # percent
        "orders_contradict": int((np.abs(table[:, 0] - table[:, 1]) == 1).sum()),  # A in one order, B in the other
        "first_preferred": 100 * decided.count("first") / len(decided) if decided else None,  # percent
        "unreadable": [pair.id for pair in pairs if pair.id not in for_a],
    }
