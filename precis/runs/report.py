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
from lightning_modules.metrics.novelty import repeated_ngrams
from lightning_modules.metrics.rouge import score_many
from lightning_modules.summarizer import Summary
from precis.config.run_config import read_config
from precis.runs.prediction_files import read_rows
from precis.runs.run_folder import run_documents

VARIANTS = ("rouge1", "rouge2", "rougeLsum")


def print_report(folder: Path, path: Path, split: str, examples: int, language: str | None = None) -> None:
    """Print scores of lead-1 and of a run's predictions in its or another language, and some summaries."""
    rows = read_rows(path)
    documents = {row["id"]: as_document(row) for row in run_documents(folder, split, language)}
    language = language or read_config(folder)["data"]["init_args"].get("language", "en")
    missing = [row["id"] for row in rows if row["id"] not in documents]
    if missing:
        raise UserError(f"{path}: {missing[0]!r} is not in the {split} split; pass --split")
    rows = [row for row in rows if row["references"]]
    if not rows:
        raise UserError(f"{path}: no document has a reference to score against")
    scored = {"lead-1": [documents[row["id"]].sentences[:1] for row in rows], "model": [row["summary"] for row in rows]}
    console = Console()
    title = f"{split}, {counted(len(rows), 'document')}"
    console.print(score_table(scored, [row["references"] for row in rows], title, language))
    step = max(1, len(rows) // max(1, examples))
    for row in rows[::step][:examples]:
        console.print(example_table(row, documents[row["id"]].text))


def score_table(
    predictions: dict[str, list[list[str]]], references: list[list[list[str]]], title: str, language: str = "en"
) -> Table:
    """Return a table with ROUGE-1/2/Lsum F1 x 100, length and repeated trigrams of each system."""
    table = Table(title=f"ROUGE F1 x 100 (stemmed) on {title}")
    for name in ("system", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "words", "repeated trigrams"):
        table.add_column(name, justify="left" if name == "system" else "right")
    for system, outputs in predictions.items():
        scores = score_many(outputs, references, VARIANTS, language=language)
        means = [100 * sum(score[v].fmeasure for score in scores) / len(scores) for v in VARIANTS]
        words = [length_words(" ".join(output)) for output in outputs]
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
    table.add_row("reference", Text(printable(join_sentences(row["references"][0]))), style="green")
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
