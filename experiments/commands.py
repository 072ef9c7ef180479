"""The commands summarize, corpus and report."""
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from datasets import Dataset
from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table
from rich.text import Text

import datamodules.corpora
from callbacks.previews import marked
from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus, as_document, build_documents
from datamodules.corpora.describe import describe, print_description
from datamodules.corpora.field_names import describe_value, first_row, guess_fields
from datamodules.corpora.files import Files
from datamodules.corpora.overlap import Duplicates, find_overlaps
from datamodules.corpora.texts import Texts
from datamodules.documents import CorpusError
from datamodules.text.lines import json_line
from datamodules.text.printable import printable, printable_line
from experiments.length_budget import LengthBudget, add_budget_arguments, read_budget
from experiments.load_classes import load_classes
from experiments.pictures.show_extraction import Shown
from experiments.prediction_files import find_predictions, read_rows
from experiments.run_config import read_config
from experiments.run_folder import Run, load_run
from experiments.summarizing import changed_options, summarize_all
from experiments.texts import collect_texts, is_records
from lightning_modules.metrics.novelty import repeated_ngrams
from lightning_modules.metrics.rouge import rouge_scores
from lightning_modules.summarizer import Summary

VARIANTS = ("rouge1", "rouge2", "rougeLsum")


def summarize(arguments: list[str]) -> None:
    """`precis summarize --checkpoint RUN [FILE | FOLDER ...]`: print a summary of each document."""
    parser = ArgumentParser(prog="precis summarize", description=summarize.__doc__, exit_on_error=False)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a run folder")
    parser.add_argument(
        "inputs", nargs="*", type=str,
        help="text files, folders of .txt files, or one file of records with a field `document` (.jsonl, .csv, "
        ".parquet); standard input if none",
    )  # fmt: skip
    parser.add_argument("--batch_size", type=int, default=16, help="number of documents summarized together")
    add_budget_arguments(parser)
    parser.add_argument("--json", type=bool, default=False, help="print one line of JSON per document instead of text")
    parser.add_argument("--mark", type=bool, default=False, help="put [brackets] around copied words; for extractive "
                        "models, show the document with [brackets] around selected sentences")  # fmt: skip
    parser.add_argument("--scores", type=bool, default=False, help="print the scores of sentences (extractive models)")
    parser.add_argument("--html", type=Path | None, default=None,
                        help="write a page of documents with marked sentences (extractive models)")  # fmt: skip
    parser.add_argument("--heat_map", type=Path | None, default=None,
                        help="write a PNG of the attention between sentences (extractive models)")  # fmt: skip
    options = parser.parse_args(arguments)
    budget = read_budget(options)
    read_config(Path(str(options.checkpoint)))  # fails before the user types a text
    corpus = _corpus_of(options.inputs)
    with TemporaryDirectory(prefix="precis-") as cache:  # the same text is rarely summarized twice
        changes = {"eval_batch_size": options.batch_size, "max_eval": None, "cache_dir": cache}
        run = load_run(Path(str(options.checkpoint)), corpus=corpus, **changes)
        documents = run.data.documents("test")
        show = Shown(options, run.model, documents)
        for summary in _within(budget, run, documents, options.heat_map is not None):
            show.keep(summary)
            if options.json:
                print(json_line(summary.record()), end="", flush=True)
                continue
            if len(documents) > 1:
                print(f"== {printable_line(summary.id)}")
            show.print(summary)
        show.write()


def _within(budget: LengthBudget, run: Run, documents: Dataset, attention: bool) -> Iterator[Summary]:
    """Yield the summaries of a run within a budget, and say how many generated ones were cut to it."""
    generates, cut = not hasattr(run.model, "selection"), 0
    with changed_options(run.model, budget.options(run.model)):
        for document, summary in zip(documents, summarize_all(run.model, run.data, attention), strict=True):
            if budget and generates:
                cut += budget.cut(summary, len(as_document(document).text.split()))
            yield summary
    if cut:
        print(f"precis: {cut} of {len(documents)} summaries were longer and end where the budget does", file=sys.stderr)


def _corpus_of(inputs: list[str]) -> Corpus:
    """Return the documents that are named on the command line: texts, or the records of one file."""
    if len(inputs) == 1 and Path(inputs[0]).is_file() and is_records(Path(inputs[0])):
        return Files(test=inputs[0])
    return Texts(collect_texts(inputs))


def corpus(arguments: list[str]) -> None:
    """`precis corpus FILE`, or `precis corpus --corpus NAME ...`: counts, lengths and first examples of a corpus."""
    parser = ArgumentParser(prog="precis corpus", description=corpus.__doc__, exit_on_error=False)
    load_classes(datamodules.corpora)
    parser.add_argument("file", nargs="?", type=Path, help="records whose fields are guessed and explained")
    parser.add_subclass_arguments(Corpus, "corpus", required=False)
    parser.add_argument("--examples", type=int, default=2, help="number of documents to show per split")
    bad_records = "what to do with invalid records"
    parser.add_argument("--on_bad_record", type=Literal["raise", "skip"], default="raise", help=bad_records)
    parser.add_argument("--cache_dir", type=Path | None, default=None, help="cache folder of documents")
    parser.add_argument("--num_proc", type=int, default=1, help="number of processes for sentence splitting")
    parser.add_argument("--json", type=bool, default=False, help="JSON instead of tables")
    parser.add_argument("--duplicates", type=Duplicates, default="exact", help="count documents in two splits: with "
                        "equal texts (exact), also near-duplicates (near, slower), or none (off)")  # fmt: skip
    options = parser.parse_args(arguments)
    if (options.file is None) == (options.corpus is None):
        raise CorpusError("precis corpus describes one corpus: give a file of records, or --corpus CORPUS ...")
    if options.file:
        described_corpus = guess_corpus(Path(str(options.file)))
    else:
        described_corpus = parser.instantiate_classes(options).corpus
    cache = Path(str(options.cache_dir)) if options.cache_dir else default_cache()
    splits = described_corpus.splits()
    if not splits:
        raise CorpusError(f"{type(described_corpus).__name__} has no split; name a source, such as --corpus.train")
    described = [
        describe(
            described_corpus, split, cache, on_bad_record=options.on_bad_record, examples=options.examples,
            num_proc=options.num_proc,
        )
        for split in splits
    ]  # fmt: skip
    building = {"on_bad_record": options.on_bad_record, "num_proc": options.num_proc}
    tables = {split: build_documents(described_corpus, split, cache, **building) for split in splits}
    overlaps = find_overlaps(tables, options.duplicates, options.num_proc)
    for description in described:
        description["overlaps"] = [
            overlap._asdict() for overlap in overlaps if overlap.split == description["split"]
        ]
    if options.json:
        print(json.dumps(described, ensure_ascii=False, indent=1, default=asdict))
    else:
        print_description(described)


def guess_corpus(path: Path) -> Files:
    """Return the records of a file by the names and layouts of its fields, which are explained on stderr."""
    row = first_row(path)
    chosen = guess_fields(row, str(path))
    roles = {chosen.document: "the document", chosen.summary: "the reference", chosen.id: "the id"}
    for name, value in row.items():
        role = f", {roles[name]}" if name in roles else ""
        print(f"{printable_line(name)}: {describe_value(value)}{role}", file=sys.stderr)
    options = "".join(f" --data.corpus.{name} {shlex.quote(str(value))}" for name, value in chosen.arguments().items())
    print(f"to train on it: --data.corpus Files --data.corpus.train {path}{options}", file=sys.stderr)
    return Files(train=str(path), **chosen.arguments())


def report(arguments: list[str]) -> None:
    """`precis report RUN`: ROUGE of lead-1 and of the run's predictions on the test split, and a few documents."""
    parser = ArgumentParser(prog="precis report", description=report.__doc__, exit_on_error=False)
    parser.add_argument("run", type=Path, help="a run folder with predictions.jsonl")
    parser.add_argument("--split", type=Literal["test", "val"], default="test", help="split of the predictions")
    parser.add_argument("--examples", type=int, default=5, help="number of documents to show")
    options = parser.parse_args(arguments)
    folder = Path(str(options.run))
    path = find_predictions(folder, options.split)
    rows = read_rows(path)
    data = load_run(folder).data
    documents = {row["id"]: as_document(row) for row in data.documents(options.split)}
    missing = [row["id"] for row in rows if row["id"] not in documents]
    if missing:
        raise CorpusError(f"{path}: {missing[0]!r} is not in the {options.split} split; pass --split")
    rows = [row for row in rows if row["references"]]
    if not rows:
        raise CorpusError(f"{path}: no document has a reference to score against")
    scored = {
        "lead-1": [documents[row["id"]].sentences[:1] for row in rows],
        "model": [row["summary"] for row in rows],
    }
    console = Console()
    console.print(score_table(scored, [row["references"] for row in rows], f"{options.split}, {len(rows)} documents"))
    step = max(1, len(rows) // max(1, options.examples))
    for row in rows[::step][: options.examples]:
        console.print(example_table(row, documents[row["id"]].text))


def score_table(predictions: dict[str, list[list[str]]], references: list[list[list[str]]], title: str) -> Table:
    """Return a table with ROUGE-1/2/Lsum F1 x 100, length and repeated trigrams of each system."""
    table = Table(title=f"ROUGE F1 x 100 (stemmed) on {title}")
    for name in ("system", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "words", "repeated trigrams"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for system, outputs in predictions.items():
        scores = [rouge_scores(output, target, VARIANTS) for output, target in zip(outputs, references)]
        means = [100 * sum(score[v].fmeasure for score in scores) / len(scores) for v in VARIANTS]
        words = [" ".join(output).split() for output in outputs]
        length, repeats = (sum(values) / len(words) for values in (map(len, words), map(repeated_ngrams, words)))
        table.add_row(system, *(f"{mean:.2f}" for mean in means), f"{length:.1f}", f"{100 * repeats:.1f} %")
    return table


def example_table(row: dict, text: str, max_characters: int = 400) -> Table:
    """Return a table of one document: its beginning, reference and summary, with copied words marked."""
    # `Text` prints brackets literally; a string would be parsed as markup of rich.
    table = Table(title=Text(printable_line(str(row["id"]))), show_header=False, min_width=80)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("document", Text(printable(text[:max_characters]) + (" ..." if len(text) > max_characters else "")))
    table.add_row("reference", Text(printable(" ".join(row["references"][0]))), style="green")
    summary = Summary(
        id=row["id"],
        sentences=row["summary"],
        references=row["references"],
        words=row.get("words"),
        copied=row.get("copied"),
    )
    shown = Text(printable(marked(summary, "⟦", "⟧")))
    shown.highlight_regex("⟦[^⟧]*⟧", "bold cyan")
    table.add_row("summary", shown)
    if row.get("copied") is not None:
        table.caption = "⟦copied words⟧"
    return table


