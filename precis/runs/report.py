"""Implementation of `precis report`: ROUGE of a run's predictions beside lead-1, and a few documents."""

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from callbacks.previews import marked
from datamodules.corpora.corpus import as_document
from datamodules.documents import UserError
from datamodules.text.language import join_sentences, length_words
from datamodules.text.lines import counted, printable, printable_line
from datamodules.text.rouge_words import vocabulary
from lightning_modules.metrics.novelty import repeated_ngrams
from lightning_modules.metrics.rouge import score_many
from lightning_modules.summarizer import Summary
from precis.config.run_config import read_config
from precis.runs.prediction_files import read_rows
from precis.runs.run_folder import run_documents

VARIANTS = ("rouge1", "rouge2", "rougeLsum")


def print_report(folder: Path, path: Path, split: str, examples: int, language: str | None = None) -> None:
    """Print ROUGE of first sentences (lead-1) and of predictions in `path`, and `examples` documents, evenly spaced."""
    records = read_rows(path)
    documents = {row["id"]: as_document(row) for row in run_documents(folder, split, language)}
    language = language or read_config(folder)["data"]["init_args"].get("language", "en")  # by default the run's
    missing = [record["id"] for record in records if record["id"] not in documents]
    if missing:
        raise UserError(f"{path}: {missing[0]!r} is not in the {split} split; pass --split")
    records = [record for record in records if record["references"]]  # the others are neither scored nor shown
    if not records:
        raise UserError(f"{path}: no document has a reference to score against")
    lead = [documents[record["id"]].sentences[:1] for record in records]
    summaries = {"lead-1": lead, "model": [record["summary"] for record in records]}
    console = Console()
    title = f"{split}, {counted(len(records), 'document')}"
    console.print(score_table(summaries, [record["references"] for record in records], title, language))
    interval = max(1, len(records) // max(1, examples))  # `examples` may be 0, or above the number of records
    for record in records[::interval][:examples]:
        console.print(example_table(record, documents[record["id"]].text))


def score_table(
    predictions: dict[str, list[list[str]]], references: list[list[list[str]]], title: str, language: str = "en"
) -> Table:
    """Return a table of mean ROUGE, length in words and repeated trigrams by system; a text is a list of sentences."""
    table = Table(title=f"ROUGE F1 x 100 ({vocabulary(language=language).description}) on {title}")
    for name in ("system", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "words", "repeated trigrams"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for system, outputs in predictions.items():
        scores = score_many(outputs, references, VARIANTS, language=language)
        means = [100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in VARIANTS]
        words = [length_words(*output) for output in outputs]  # words of each summary
        length = sum(map(len, words)) / len(words)
        repeats = sum(map(repeated_ngrams, words)) / len(words)  # trigrams, the default
        table.add_row(system, *(f"{mean:.2f}" for mean in means), f"{length:.1f}", f"{100 * repeats:.1f} %")
    return table


def example_table(record: dict, text: str, max_characters: int = 400) -> Table:
    """Return a table of a prediction: start of the document `text`, reference, summary with copied words marked."""
    # `Text` prints brackets literally; a string would be parsed as markup of rich.
    table = Table(title=Text(printable_line(str(record["id"]))), show_header=False, min_width=80)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("document", Text(printable(text[:max_characters]) + (" ..." if len(text) > max_characters else "")))
    table.add_row("reference", Text(printable(join_sentences(record["references"][0]))), style="green")
    copying = {"words": record.get("words"), "copied": record.get("copied")}  # in predictions of models that copy
    summary = Summary(record["id"], sentences=record["summary"], references=record["references"], **copying)
    summary_text = Text(printable(marked(summary, "⟦", "⟧")))  # brackets that hardly any text has
    summary_text.highlight_regex("⟦[^⟧]*⟧", "bold cyan")
    table.add_row("summary", summary_text)
    if record.get("copied") is not None:
        table.caption = "⟦copied words⟧"
    return table
