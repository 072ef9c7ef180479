"""Long documents for extraction: articles of SumPubMed with their headings in paragraphs, and stories of SQuALITY.

    python -m experiments.studies.discourse_extraction.long_documents sumpubmed/train.jsonl.gz \\
        squality/train.jsonl.gz squality/val.jsonl.gz

It writes articles.jsonl (the first 600) and stories.jsonl (with the summaries of the first question, on the plot).
"""

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from datamodules.atomic_write import atomic_write
from experiments.studies.discourse_extraction.documents import read_records

ARTICLES = 600
HEADINGS = {
    "background", "results", "discussion", "results and discussion", "methods", "materials and methods", "conclusions",
    "conclusion", "competing interests", "authors' contributions", "authors’ contributions", "abbreviations",
    "supplementary material", "acknowledgements",
}  # fmt: skip


def with_sections(text: str) -> str:
    """Return a text of a sentence per line with one paragraph per heading and section."""
    lines = [f"\n\n{line}\n\n" if line.strip().lower() in HEADINGS else f"{line} " for line in text.split("\n")]
    return "".join(lines).strip()


def article_of(row: dict) -> dict:
    """Return an article of SumPubMed with its sections in paragraphs."""
    return {"id": row["id"], "document": with_sections(row["document"]), "summary": row["summary"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both files into the working folder."""
    parser = argparse.ArgumentParser(prog="python -m experiments.studies.discourse_extraction.long_documents")
    parser.add_argument("articles", type=Path, help="articles of SumPubMed")
    parser.add_argument("stories", type=Path, nargs="+", help="stories of SQuALITY")
    options = parser.parse_args(arguments)
    articles = [article_of(row) for row in islice(read_records(options.articles), ARTICLES)]
    stories = [
        {name: row[name] for name in ("id", "document", "summaries")}
        for path in options.stories
        for row in read_records(path)
        if row["id"].endswith("#1")
    ]
    for name, rows in (("articles", articles), ("stories", stories)):
        atomic_write(Path(f"{name}.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
