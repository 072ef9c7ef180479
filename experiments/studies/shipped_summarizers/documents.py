"""Write the training documents of the shipped extractive models, all openly licensed, as JSON Lines.

    python -m experiments.studies.shipped_summarizers.documents DATA --out runs/open

DATA has the folders scitldr, gum and squality of the datasets of the results (docs/own_data.md). Besides train.jsonl
and val.jsonl, which together have all documents, there are train_without_GENRE.jsonl and val_GENRE.jsonl for
cross-validation over genres.
"""

import gzip
import json
import random
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datamodules.corpora.docstrings import Docstrings
from datamodules.text.sentence_layout import PROSE, layout_features
from datamodules.text.sentences import split_sentences

Row = dict[str, Any]  # id, genre, document (a list of paragraphs), summary (a list of references)

# How often an epoch has each document: there are few of some genres, and sampling is then about even
REPEATS = {"scitldr": 2, "docstrings": 1, "squality": 10, "gum_places": 10, "gum_people": 10, "passages": 1}
PLACES = ("bio", "news", "voyage")  # genres of GUM whose documents begin with what matters
ACADEMIC = ("academic", "textbook")
NUM_DOCSTRINGS, NUM_PASSAGES = 1_000, 2_000


def read(path: Path) -> Iterator[Row]:
    """Yield the records of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def paragraphs(text: str) -> list[str]:
    """Return the parts of a text between blank lines."""
    return [part for part in re.split(r"\n\s*\n", text) if part.strip()]


def paragraphs_and_summaries(row: Row) -> tuple[list[str], list[str]]:
    """Return the paragraphs of a document of GUM, and its summaries by humans."""
    text = [row["text"][start:end] for start, end in row["paragraphs"]]
    sources = zip(row["summaries"], row["summary_sources"], strict=True)
    return text, [summary for summary, source in sources if source.startswith("human")]


def documents(data: Path) -> Iterator[Row]:
    """Yield the documents with summaries: abstracts, stories, GUM, docstrings."""
    for row in read(data / "scitldr" / "train.jsonl.gz"):
        yield {"id": row["id"], "genre": "scitldr", "document": [row["document"]], "summary": row["summaries"]}
    for row in read(data / "squality" / "train.jsonl.gz"):
        if row["id"].endswith("#1"):  # the question about the plot
            story = paragraphs(row["document"])
            yield {"id": row["id"], "genre": "squality", "document": story, "summary": row["summaries"]}
    for row in read(data / "gum" / "train.jsonl.gz"):
        text, references = paragraphs_and_summaries(row)
        if references and "NC" not in row["license"]:
            genre = "gum_places" if row["genre"] in PLACES else "gum_people"
            yield {"id": row["id"], "genre": genre, "document": text, "summary": references}
    records = list(Docstrings().records("train"))
    for record in random.Random(0).sample(records, min(NUM_DOCSTRINGS, len(records))):
        text = [part if isinstance(part, str) else " ".join(part) for part in record.parts]
        yield {"id": record.id, "genre": "docstrings", "document": text, "summary": list(record.references)}


def passages(rows: list[Row]) -> Iterator[Row]:
    """Yield passages of 3 to 45 sentences from the beginning of a paragraph on; the summary is their beginning.

    They teach the prior that a short text of no known genre begins with what matters. Abstracts and docstrings have
    summaries of their own, and academic texts another order.
    """
    rng = random.Random(0)
    sources = [row for row in rows if row["genre"] in ("squality", "gum_places", "gum_people")]
    sources = [row for row in sources if not any(name in row["id"] for name in ACADEMIC)]
    for number in range(NUM_PASSAGES):
        row = rng.choice(sources)
        split = [split_sentences(part) for part in row["document"]]
        first = rng.randrange(len(split))
        size = int(3 * 15 ** rng.random())  # short passages are more frequent
        sentences = [sentence for part in split[first:] for sentence in part][:size]
        is_prose = layout_features([sentences])[0, :, PROSE].tolist()
        prose = [sentence for sentence, flag in zip(sentences, is_prose) if flag]
        if len(sentences) >= 3 and prose:
            # sentences of one part, as in an e-mail or an article without paragraphs
            reference = [prose[: 1 if len(prose) < 8 else 3]]
            yield {"id": f"passage {number}", "genre": "passages", "of": row["genre"], "document": [sentences],
                   "summary": reference}  # fmt: skip


def write(path: Path, rows: list[Row], repeat: bool) -> None:
    """Write rows as JSON Lines, those of small genres several times."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            for time in range(REPEATS[row["genre"]] if repeat else 1):
                file.write(json.dumps({**row, "id": f"{row['id']} {time}" if time else row["id"]}) + "\n")
    print(f"{path}: {len(rows)} documents")


def main() -> None:
    """Write the files."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with scitldr, gum and squality")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = list(documents(options.data))
    val = rows[::12]
    held_out = {row["id"] for row in val}
    train = [row for row in rows if row["id"] not in held_out]
    train += passages(train)
    write(options.out / "train.jsonl", train, repeat=True)
    write(options.out / "val.jsonl", val, repeat=False)
    for genre in sorted({row["genre"] for row in rows}):
        others = [row for row in train if genre not in (row["genre"], row.get("of"))]
        write(options.out / f"train_without_{genre}.jsonl", others, repeat=True)
        write(options.out / f"val_{genre}.jsonl", [row for row in rows if row["genre"] == genre][:150], repeat=False)


if __name__ == "__main__":
    main()
