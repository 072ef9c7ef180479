"""Write ScisummNet as the tokenizer of the CNN/DailyMail runs expects it: lower case, spaces around punctuation.

    python -m experiments.studies.paragraph_graphs.lower_case scisummnet_mds/train.jsonl.gz scisummnet/train.jsonl
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from datamodules.atomic_write import atomic_write
from experiments.studies.discourse_extraction.documents import read_records


def lower(text: str) -> str:
    """Return a text in lower case, with a space on either side of punctuation and no other white space."""
    return re.sub(r"\s+", " ", re.sub(r"([.,;:!?()\"])", r" \1 ", text)).strip().lower()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="records with documents and a summary")
    parser.add_argument("out", type=Path, help="file to write")
    options = parser.parse_args(arguments)
    rows = [
        row | {"documents": [lower(text) for text in row["documents"]], "summary": lower(row["summary"])}
        for row in read_records(options.file)
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(options.out, "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
