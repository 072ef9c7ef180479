"""Write the files that the sweeps of RSTformer over a small LED read:

    python -m experiments.studies.led_from_bert.data_files sentences scitldr/train.jsonl.gz scitldr/val.jsonl.gz \\
        --out closest
    python -m experiments.studies.led_from_bert.data_files news cnndm/train.jsonl.gz cnndm/val.jsonl.gz
    python -m experiments.studies.led_from_bert.data_files articles sumpubmed/train.jsonl.gz articles.jsonl
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from datamodules.atomic_write import atomic_write
from datamodules.corpora import Files
from datamodules.corpora.corpus import make_document
from datamodules.documents import UserError
from datamodules.text.oracle import greedy_oracle
from experiments.studies.discourse_extraction.documents import of_length, read_records
from experiments.studies.discourse_extraction.long_documents import ARTICLES, HEADINGS, article_of
from experiments.studies.discourse_extraction.parsed_corpora import read_corpus

FIRST_NEWS, ARM_NEWS, VAL_NEWS, NEWS_WORDS = 32_000, 6_400, 1_000, 100
FIRST_ARTICLES, ARM_ARTICLES, MAX_SENTENCES = 1_600, 342, 200
PASSAGES, VAL_PASSAGES, PASSAGE_WORDS, LONGEST_PASSAGE = 12_800, 200, 80, 140


def closest_sentences(train: Path, val: Path) -> dict[str, list[dict]]:
    """Return abstracts of SciTLDR with their sentence closest to the TLDR (ROUGE-1 + ROUGE-2) as summary."""
    corpus = Files(str(train), str(val), summary="summaries")
    files: dict[str, list[dict]] = {"train": [], "val": []}
    for split, rows in files.items():
        for document in map(make_document, corpus.records(split)):
            chosen = greedy_oracle(document.sentences, document.references, k=1)
            summary = document.sentences[chosen[0] if chosen else 0]
            rows.append({"id": document.id, "document": document.text, "summary": summary})
    return files


def news_beginnings(train: Path, val: Path) -> dict[str, list[dict]]:
    """Return the first words of news articles, in parts: to train a LED on, to compare arms, and to validate."""
    rows = {name: read_records(path) for name, path in (("train", train), ("val", val))}
    random.Random(0).shuffle(rows["train"])
    random.Random(1).shuffle(rows["val"])
    parts = {
        "first": rows["train"][:FIRST_NEWS],
        "arms": rows["train"][FIRST_NEWS : FIRST_NEWS + ARM_NEWS],
        "val": rows["val"][:VAL_NEWS],
    }
    return {name: [row | {"document": _beginning(row["document"])} for row in part] for name, part in parts.items()}


def _beginning(text: str) -> str:
    """Return the sentences within the first words of a tokenized text, or those words if they have no late end."""
    words = text.split()
    if len(words) <= NEWS_WORDS:
        return " ".join(words)
    ends = [index for index, word in enumerate(words[:NEWS_WORDS]) if word == "."]
    return " ".join(words[: ends[-1] + 1 if ends and ends[-1] > 40 else NEWS_WORDS])


def article_parts(train: Path, articles: Path) -> dict[str, list[dict]]:
    """Return articles of SumPubMed in parts, and passages of them with their first sentence as summary.

    Those of the articles that `long_documents` wrote which have at most 200 sentences, as in extraction, are for arms
    and validation; the LED is trained on others before.
    """
    suitable = {row.document.id for row in of_length(read_corpus([articles]), None, MAX_SENTENCES)}
    parsed = [row for row in read_records(articles) if row["id"] in suitable]
    others = read_records(train)[ARTICLES:]
    passages = [
        {"id": f"{id}-{number}", "document": " ".join(sentences), "summary": sentences[0]}
        for number, (id, sentences) in enumerate((row["id"], passage) for row in others for passage in _passages(row))
    ]
    random.Random(0).shuffle(passages)
    return {
        "passages_val": passages[:VAL_PASSAGES],
        "passages": passages[VAL_PASSAGES : VAL_PASSAGES + PASSAGES],
        "first": [article_of(row) for row in others[:FIRST_ARTICLES]],
        "arms": parsed[:ARM_ARTICLES],
        "val": parsed[ARM_ARTICLES:],
    }


def _passages(row: dict) -> Iterator[list[str]]:
    """Yield the sentences of passages of an article; those without a suitable first sentence are left out."""
    sentences, words = [], 0
    for sentence in map(str.strip, row["document"].split("\n")):
        if not sentence or sentence.lower() in HEADINGS:
            continue
        sentences.append(sentence)
        words += len(sentence.split())
        if words >= PASSAGE_WORDS:
            if words <= LONGEST_PASSAGE and 5 <= len(sentences[0].split()) <= 40:
                yield sentences
            sentences, words = [], 0


KINDS = {"sentences": closest_sentences, "news": news_beginnings, "articles": article_parts}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS, help="which files")
    parser.add_argument("train", type=Path, help="training documents")
    parser.add_argument("other", type=Path, help="validation documents; for articles those with parses")
    parser.add_argument("--out", type=Path, default=Path(), help="folder to write to; the working folder by default")
    options = parser.parse_args(arguments)
    try:
        files = KINDS[options.kind](options.train, options.other)
    except (UserError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    options.out.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        atomic_write(options.out / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        print(f"{options.out / name}.jsonl: {len(rows):,} documents")


if __name__ == "__main__":
    main()
