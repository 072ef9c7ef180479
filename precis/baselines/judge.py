"""`precis judge`: two systems compared by a chat model that sees each pair of summaries in both orders."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jsonargparse import ArgumentParser, Namespace

from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import counted
from precis.baselines.answers import check_settings, open_answers, read_answers
from precis.baselines.endpoint import Endpoint, Reply, add_endpoint_arguments
from precis.baselines.prompts import check_fields, fill
from precis.baselines.records import answer_text, name_documents
from precis.evaluation.predictions import Prediction, read_predictions, run_sources
from precis.files.texts import read_text
from precis.statistics.statistics import LEVEL, RESAMPLES, bootstrap_interval

PROMPT = Path(__file__).with_name("judge_prompt.txt")
Verdict = Literal["first", "second", "tie"]
# The whole last line: "1", "**Summary 2**", "Answer: tie."
_VERDICT = re.compile(r"\W*(?:(?:final|answer|verdict|summary)\W*)*(1|2|tie)\W*", re.IGNORECASE)
_VERDICTS: dict[str, Verdict] = {"1": "first", "2": "second", "tie": "tie"}


class Pair(NamedTuple):
    """Two summaries of a document.

    Attributes:
        id: id of the document.
        document: its text.
        a: summary of system A.
        b: summary of system B.
    """

    id: str
    document: str
    a: str
    b: str

    def prompts(self, template: str) -> Iterator[tuple[str, str]]:
        """Yield id and prompt of both orders; nothing where the summaries are the same."""
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
    path, template = Path(options.out), _template(options.prompt)
    if path.suffix != ".jsonl":
        raise UserError(f"--out {path}: answers are JSON Lines; name a file that ends in .jsonl")
    settings = {"pairs": digest_of(pairs), "prompt": template}
    failures: dict[str, str] = {}
    if options.base_url is None:
        recorded, answers = read_answers(path)
        check_settings(path, {name: recorded.get(name) for name in settings}, settings)
    else:
        answers, failures = _ask(options, pairs, template, settings)
    missing = [name for pair in pairs for name, _ in pair.prompts(template) if name not in answers]
    if missing:
        reason = failures.get(missing[0], "it was never asked for")
        remedy = "run the command with --base_url and --model again"
        lacking = counted(len(missing), "answer")
        raise UserError(f"{path}: {lacking} missing, the first {missing[0]!r}: {reason}; {remedy}")
    texts = {name: row["text"] for name, row in answers.items()}
    result = summarize(pairs, texts, options.resamples, options.seed)
    if options.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        show(result, options.a, options.b, path)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis judge", description=judge.__doc__, exit_on_error=False)
    parser.add_argument("a", type=str, help="predictions of system A, such as RUN/predictions.jsonl")
    parser.add_argument("b", type=str, help="predictions of system B for the same documents")
    parser.add_argument("--out", type=str, required=True, help="file of the answers, such as judged.jsonl")
    add_endpoint_arguments(parser)
    parser.add_argument("--model", type=str | None, default=None, help="name of the judge at the endpoint")
    parser.add_argument("--documents", type=str | None, default=None, help="a file with the sources")
    parser.add_argument("--run", type=str | None, default=None, help="a run folder whose corpus has the sources")
    parser.add_argument("--split", type=str, default="test", help="the split of the run's corpus")
    parser.add_argument("--prompt", type=str | None, default=None, help="a file with {document}, {first} and {second}")
    parser.add_argument("--resamples", type=int, default=RESAMPLES, help="number of resamples of the bootstrap")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    return parser


def _read(options: Namespace) -> list[Pair]:
    """Return the pairs of two files of predictions.

    Raises:
        UserError: if they are of different documents, or there are no sources.
    """
    documents = Path(options.documents) if options.documents else None
    a, b = read_predictions(Path(options.a), documents=documents), read_predictions(Path(options.b))
    others = {one.id: one for one in b}
    for one, path, ids in [(one, options.b, others) for one in a] + [(one, options.a, {x.id for x in a}) for one in b]:
        if one.id not in ids:
            raise UserError(f"{path}: no summary of document {one.id!r}; give two systems on the same documents")
    sources = run_sources(options.run, options.split) if options.run else {}
    return [
        Pair(one.id, _source(one, sources.get(one.id)), "\n".join(one.summary), "\n".join(others[one.id].summary))
        for one in a
    ]


def _source(one: Prediction, sentences: list[str] | None) -> str:
    sentences = sentences or one.document
    if sentences is None:
        raise UserError(f"{one.where}: there is no source of this document; add --documents FILE or --run RUN")
    return " ".join(sentences)


def _template(path: str | None) -> str:
    if path is not None and not Path(path).is_file():
        raise UserError(f"--prompt {path}: no such file; give one with {{document}}, {{first}} and {{second}}")
    template = read_text(Path(path) if path else PROMPT)
    check_fields(str(path), template, dict.fromkeys(("document", "first", "second"), True))
    return template


def digest_of(pairs: Sequence[Pair]) -> str:
    """Return a digest of documents and summaries."""
    return text_digest(json.dumps(pairs))[:16]


def _ask(
    options: Namespace, pairs: Sequence[Pair], template: str, settings: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Request the missing answers; return all answers, and reasons for those still missing."""
    if options.model is None:
        raise UserError("--model: name the judge at the endpoint")
    endpoint = Endpoint.of(options)
    prompts = [prompt for pair in pairs for prompt in pair.prompts(template)]
    settings = {"system": "judge", "model": options.model, "request": endpoint.request} | settings
    with open_answers(Path(options.out), settings) as answers, progress_bar() as progress:
        task = progress.add_task("answers", total=len(prompts), completed=len(answers.rows))

        def done(name: str, reply: Reply) -> None:
            answers.add([{"id": name, **reply._asdict(), "server": options.base_url}])
            progress.advance(task)

        missing = ((name, prompt) for name, prompt in prompts if name not in answers.rows)
        failures = endpoint.answer_all(missing, done)
        return answers.rows, failures


def read_verdict(text: str) -> Verdict | None:
    """Return the verdict on the last line of an answer; None if it is not clear."""
    lines = [line for line in answer_text(text).split("\n") if line.strip()]
    match = _VERDICT.fullmatch(lines[-1]) if lines else None
    return _VERDICTS[match[1].lower()] if match else None


def summarize(
    pairs: Sequence[Pair], texts: Mapping[str, str], resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """Return how often A is preferred, and how far the judge can be relied on.

    The preference for A on a document is the mean over both orders of 1 if A wins, 0 if B wins, and 1/2 for a tie;
    identical summaries are a tie. Documents with an unreadable answer are excluded and named.

    Args:
        pairs: the pairs.
        texts: answers by order and id, `ab doc-1`.
        resamples: number of resamples of the bootstrap over documents.
        seed: seed of the bootstrap.

    Raises:
        UserError: if no answer can be read.
    """
    verdicts = {name: read_verdict(text) for name, text in texts.items()}
    orders: dict[str, tuple[float, float]] = {}
    for pair in pairs:
        both = ("tie", "tie") if pair.a == pair.b else (verdicts[f"ab {pair.id}"], verdicts[f"ba {pair.id}"])
        if None not in both:
            orders[pair.id] = _preference(both[0]), 1 - _preference(both[1])
    if verdicts and not any(verdicts.values()):
        raise UserError("no answer of the judge can be read; change --prompt so that each ends with 1, 2 or tie")
    table = np.array(list(orders.values()))                                                  # [N, 2]
    preferences = table.mean(axis=1)                                                         # [N]
    interval = bootstrap_interval(100 * preferences, resamples=resamples, seed=seed)
    decided = [verdict for verdict in verdicts.values() if verdict in ("first", "second")]
    return {
        "documents": len(pairs),
        "preference": interval._asdict() | {"level": LEVEL, "resamples": resamples, "seed": seed},
        "a_better": int((preferences > 0.5).sum()),
        "ties": int((preferences == 0.5).sum()),
        "b_better": int((preferences < 0.5).sum()),
        "same_summaries": sum(pair.a == pair.b for pair in pairs),
        "orders_agree": 100 * float((table[:, 0] == table[:, 1]).mean()),
        "orders_contradict": int((np.abs(table[:, 0] - table[:, 1]) == 1).sum()),
        "first_preferred": 100 * decided.count("first") / len(decided) if decided else None,
        "unreadable": [pair.id for pair in pairs if pair.id not in orders],
    }


def _preference(verdict: Verdict) -> float:
    """Return the preference for the summary that came first."""
    return {"first": 1.0, "tie": 0.5, "second": 0.0}[verdict]


def show(result: Mapping[str, Any], a: str, b: str, path: Path) -> None:
    """Print a result."""
    preference = result["preference"]
    interval = f"{preference['low']:.1f} to {preference['high']:.1f}"
    print(f"A = {a}\nB = {b}")
    print(f"preference for A: {preference['mean']:.1f} % (95 % interval {interval}; 50 % is a draw)")
    print(f"A better: {result['a_better']:,}, tie: {result['ties']:,}, B better: {result['b_better']:,}")
    contradictions = f"{result['orders_contradict']:,} contradict each other"
    print(f"both orders agree on {result['orders_agree']:.1f} % of documents, {contradictions}")
    if result["first_preferred"] is not None:
        print(f"the summary that comes first is preferred in {result['first_preferred']:.1f} % of decisions")
    if result["same_summaries"]:
        print(f"{counted(result['same_summaries'], 'pair')} of the same summary, taken as ties without a question")
    if unreadable := name_documents(result["unreadable"], "documents without a readable verdict, left out"):
        print(unreadable)
    print(f"answers: {path}; without --base_url the result is computed from them again")
