"""Score the shipped extractive models beside lead, TextRank and LexRank, by genre, as a page in Markdown.

    python -m experiments.studies.shipped_summarizers.evaluate DATA --out scores.md

DATA has the folders scitldr, gum, squality, cnndm, aeslc and sumpubmed of the datasets of the results.
"""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from datamodules.corpora.corpus import make_document
from datamodules.corpora.texts import Records
from datamodules.documents import Document
from experiments.studies.shipped_summarizers.documents import Row, paragraphs, paragraphs_and_summaries, read
from lightning_modules.extractive.baselines import lead, lexrank, textrank
from lightning_modules.metrics.rouge import rouge_scores
from precis.api.summaries import light_model, light_summaries
from precis.config.shipped import LIGHT, shipped_folder
from precis.statistics.statistics import bootstrap_interval
from precis.summarizing.summary_options import LengthBudget

VARIANTS = ("rouge1", "rouge2", "rougeLsum")
SENTENCES = {"scitldr": 1, "gum": 1, "squality": 8, "cnndm": 3, "aeslc": 1, "sumpubmed": 8}
LIMITS = {"cnndm": 1000, "sumpubmed": 150}  # the first documents
System = Callable[[list[Document], int], list[list[str]]]


def validation_rows(data: Path, corpus: str) -> Iterator[Row]:
    """Yield the validation documents of a corpus, those of GUM with the human summaries alone."""
    for number, row in enumerate(read(data / corpus / "val.jsonl.gz")):
        if number >= LIMITS.get(corpus, number + 1) or (corpus == "squality" and not row["id"].endswith("#1")):
            continue
        if corpus == "gum":
            text, summaries = paragraphs_and_summaries(row)
            references = [[summary] for summary in summaries]
        elif corpus in ("squality", "scitldr"):
            text, references = paragraphs(row["document"]), row["summaries"]
        else:
            text, references = row["document"], [row["summary"].split("\n")]
        genre = row["genre"] if corpus == "gum" else corpus
        yield {"id": row["id"], "genre": genre, "document": text, "summary": references}


def shipped(name: str) -> System:
    """Return a shipped model as a system."""

    def summaries(documents: list[Document], k: int) -> list[list[str]]:
        model = light_model(shipped_folder(name))
        return [summary.sentences for summary in light_summaries(model, documents, LengthBudget(sentences=k))]

    return summaries


def untrained(select: Callable[[Document, int], list[int]]) -> System:
    """Return a baseline as a system."""

    def summaries(documents: list[Document], k: int) -> list[list[str]]:
        return [[document.sentences[index] for index in select(document, k)] for document in documents]

    return summaries


SYSTEMS: dict[str, System] = {"lead": untrained(lead), "TextRank": untrained(textrank), "LexRank": untrained(lexrank)}
SYSTEMS |= {name: shipped(name) for name in LIGHT}


def scores_of(document: Document, summary: list[str]) -> list[float]:
    """Return ROUGE F1 x 100 of a summary against the reference with the highest ROUGE-1."""
    scores = rouge_scores(summary, document.references, VARIANTS, multi_reference="best_rouge1")
    return [100 * scores[variant].fmeasure for variant in VARIANTS]


def cell(values: np.ndarray, sign: str = "") -> str:
    """Return a mean with its 95 % bootstrap interval; an interval over two documents would say nothing."""
    if len(values) < 3:
        return f"{values.mean():{sign}.1f}"
    mean, low, high = bootstrap_interval(values)
    return f"{mean:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]"


def rows_of_table(data: Path, systems: dict[str, System]) -> tuple[list[str], list[str]]:
    """Return the rows by genre (ROUGE-1 and differences to lead) and by corpus (ROUGE-2 and -L of each system)."""
    by_genre, by_corpus = [], []
    for corpus, k in SENTENCES.items():
        rows = list(validation_rows(data, corpus))
        documents = [make_document(record) for record in Records(rows).records("test")]
        tables = {}
        for name, system in systems.items():
            summaries = system(documents, k)
            tables[name] = np.array([scores_of(document, text) for document, text in zip(documents, summaries)])
        genres = np.array([row["genre"] for row in rows])
        groups = [(corpus, np.ones(len(rows), bool))]
        groups += [(genre, genres == genre) for genre in np.unique(genres) if genre != corpus]
        for genre, chosen in groups:
            means = [f"{tables[name][chosen, 0].mean():.1f}" for name in systems]
            of_lead = tables["lead"][chosen, 0]
            gains = [cell(tables[name][chosen, 0] - of_lead, "+") for name in systems if name in LIGHT]
            by_genre.append(f"| {genre} | {chosen.sum()} | {' | '.join([*means, *gains])} |")
        for number, (name, table) in enumerate(tables.items()):
            cells = ["" if number else corpus, name, *(cell(column) for column in table.T[1:])]
            by_corpus.append(f"| {' | '.join(cells)} |")
        print(by_genre[-len(groups)], flush=True)
    return by_genre, by_corpus


def page(data: Path, systems: dict[str, System]) -> str:
    """Return the tables."""
    by_genre, by_corpus = rows_of_table(data, systems)
    names = [*systems, *(f"{name} - lead" for name in systems if name in LIGHT)]
    heads = [f"| genre | documents | {' | '.join(names)} |", f"|---|--:|{'--:|' * len(names)}"]
    more = ["", "| corpus | system | ROUGE-1 | ROUGE-2 | ROUGE-Lsum |", "|---|---|--:|--:|--:|"]
    return "\n".join([*heads, *by_genre, *more, *by_corpus]) + "\n"


def main() -> None:
    """Write the page."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder of the datasets")
    parser.add_argument("--out", type=Path, required=True, help="Markdown file to write")
    options = parser.parse_args()
    options.out.write_text(page(options.data, SYSTEMS), encoding="utf-8")


if __name__ == "__main__":
    main()
