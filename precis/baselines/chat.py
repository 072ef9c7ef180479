"""`precis baseline chat`: summaries by a chat model at an endpoint."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.text.hashing import text_digest
from datamodules.text.language import count_words, first_words
from datamodules.text.lines import counted
from precis.baselines import baseline_files
from precis.baselines.answers_file import Answers, answers_path, open_answers
from precis.baselines.endpoint import Endpoint, add_endpoint_arguments
from precis.summarizing.prompts import answer_text, check_fields, fill, read_prompt, read_queries, shipped_prompts

if TYPE_CHECKING:
    from datasets import Dataset
_REFUSAL = re.compile(r"^\W*(i([’']m| am) (sorry|unable)|sorry,|i can(no|[’'])t |as an ai )", re.IGNORECASE)


def chat(arguments: list[str]) -> None:
    """`precis baseline chat --model NAME --base_url URL`: summaries by a chat model behind OpenAI's protocol.

    Answers are not drawn at random (temperature 0). A killed command continues when it is run again. A model of
    Hugging Face needs no server: precis baseline hf --checkpoint NAME.
    """
    parser = _parser()
    options = parser.parse_args(baseline_files.expand_corpus_file(arguments))
    target = Path(options.out)
    prompts = _Prompts(options)
    if options.base_url is None:
        raise UserError(f"--base_url is missing; without a server, use precis baseline hf --checkpoint {options.model}")
    endpoint = Endpoint(options)
    # what answers depend on; the address is left out, because a continued job may find the server at another one
    settings = {"system": "chat", "model": options.model, "request": endpoint.request}
    documents = baseline_files.read_documents(parser, options)
    prompts.check_queries(documents["id"])
    settings |= prompts.settings | {"split": options.split}
    settings["documents"] = baseline_files.documents_digest(map(as_document, documents))
    with open_answers(answers_path(target), settings) as answers:
        pairs = ((document.id, prompts.prompt(document)) for document in map(as_document, documents))
        failures = endpoint.request_missing(pairs, answers, len(documents))
        if failures and options.on_failure == "raise":
            first_id, reason = next(iter(failures.items()))
            remedy = "correct this and run the command again, or write empty summaries with --on_failure empty"
            lacking = counted(len(failures), "document")
            raise UserError(f"no answer for {lacking}, the first {first_id}: {reason}; {remedy}")
        counts, notes = count_problems(prompts, documents, answers, failures)
        keys = ("model", "prompt", "n", "query", "max_words", "request", "documents")  # in the signature
        signed = {key: _digest(settings.get(key)) for key in keys}  # long values as digests
        record = {"split": options.split, "base_url": options.base_url}
        record |= {"signature": baseline_files.signature("chat", signed), "settings": settings, "counts": counts}
        texts = {name: answer_text(answer["text"]) for name, answer in answers.by_id.items()}  # without <think>
        baseline_files.write_predictions(target, documents, texts, record, notes, options.language)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis baseline chat", description=chat.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("--model", type=str, required=True, help="name of the model at the endpoint")
    add_endpoint_arguments(parser)
    baseline_files.add_document_arguments(parser)
    add("--prompt", type=str, default="three_sentences", help=f"a file, or one of {', '.join(shipped_prompts())}")
    add("--n", type=int | None, default=None, help="value of {n} in the prompt, the number of words")
    add("--query", type=str | None, default=None, help="value of {query} in the prompt, for all documents")
    add("--queries", type=str | None, default=None, help="file of records with the id of each document and its query")
    add("--query_field", type=str, default="query", help="field with the query in --queries")
    add("--max_words", type=PositiveInt | None, default=None, help="send at most this many first words of a document")
    add("--on_failure", type=Literal["raise", "empty"], default="raise", help="no answer: fail, or an empty summary")
    return parser


class _Prompts:
    """Makes prompts for documents from a template and the command's options; a `UserError` if these do not fit."""

    def __init__(self, options: Namespace) -> None:
        self.template = read_prompt(options.prompt)  # with placeholders {document}, perhaps {n} and {query}
        self.max_words = options.max_words
        if options.query is not None and options.queries is not None:
            raise UserError("--query and --queries both give queries; leave one out")
        self.queries = read_queries(Path(options.queries), options.query_field) if options.queries else None  # by id
        has_query = options.query is not None or options.queries is not None  # True: {query} required; False: refused
        check_fields(options.prompt, self.template, {"document": True, "n": options.n is not None, "query": has_query})
        # what prompts depend on, besides documents; n: number of words to write
        self.settings = {"prompt": self.template, "n": options.n, "query": self.queries or options.query}
        self.settings["max_words"] = self.max_words

    def check_queries(self, ids: list[str]) -> None:
        """Raise a `UserError` if the file --queries lacks the query of a document with one of these `ids`."""
        lacking = [] if self.queries is None else [name for name in ids if name not in self.queries]
        if lacking:
            raise UserError(f"document {lacking[0]}: --queries has no record with this id; add it")

    def words(self, document: Document) -> tuple[int, int]:
        """Return (number of words of a document that are sent, number of words that it has)."""
        total = count_words(document.sentences)
        return min(total, self.max_words or total), total  # `max_words` is None: no limit

    def prompt(self, document: Document) -> str:
        """Return the prompt for a document, with at most the first `max_words` words of its text."""
        num_sent, total = self.words(document)  # numbers of words: sent to the model, and of the whole document
        text = " ".join(first_words(document.sentences, num_sent)) if num_sent < total else document.text
        query = self.settings["query"] if self.queries is None else self.queries[document.id]  # None without {query}
        return fill(self.template, {"document": text, "n": str(self.settings["n"]), "query": query or ""})


def count_problems(
    prompts: _Prompts, documents: "Dataset", answers: Answers, failures: dict[str, str]
) -> tuple[dict[str, Any], list[str | None]]:
    """Return counts (tokens, words, documents with each problem) by name, and notes on problems and tokens to print."""
    replies = [answers.by_id[name] for name in documents["id"] if name in answers.by_id]
    texts = {reply["id"]: answer_text(reply["text"]) for reply in replies}  # without <think>...</think>
    refused = [reply["id"] for reply in replies if reply["refusal"] or reply["finish_reason"] == "content_filter"]
    cut_off = [reply["id"] for reply in replies if reply["finish_reason"] == "length"]
    words = {document.id: prompts.words(document) for document in map(as_document, documents)}  # (number sent, total)
    problems = {  # ids of documents by problem
        "documents shortened to max_words": [name for name, (num_sent, total) in words.items() if num_sent < total],
        "answers refused by the server": refused,
        "answers worded like a refusal": [name for name, text in texts.items() if _REFUSAL.match(text)],
        "empty answers": [name for name, text in texts.items() if not text and name not in refused],
        "answers cut off by max_tokens or the server": cut_off,
        "documents without an answer": list(failures),  # ids; the values are reasons
    }
    # sums over replies; a number that the server did not report is None, and counts as 0
    tokens = {name: sum(reply[name] or 0 for reply in replies) for name in ("prompt_tokens", "answer_tokens")}
    notes = [baseline_files.name_documents(ids, problem) for problem, ids in problems.items()]
    notes.append(f"{tokens['prompt_tokens']:,} tokens of prompts, {tokens['answer_tokens']:,} of answers")
    sizes = {"words": [sum(sent for sent, _ in words.values()), sum(total for _, total in words.values())]}  # sent, all
    return tokens | sizes | {problem: len(ids) for problem, ids in problems.items()}, notes


def _digest(value: Any) -> Any:
    """Return a setting for the signature, which is one line: the value if it is short, otherwise a digest."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    is_short = len(text) <= 80 and "\n" not in text
    return value if value is None or is_short else text_digest(text)[:8]  # the signature leaves None out
