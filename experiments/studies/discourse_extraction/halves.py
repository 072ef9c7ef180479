"""Two halves of a corpus, half-0.jsonl and half-1.jsonl, so that a model trained on each can score the other:

    python -m experiments.studies.discourse_extraction.halves scitldr/train.jsonl.gz scitldr/val.jsonl.gz
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from datamodules.atomic_write import atomic_write
from experiments.studies.discourse_extraction.documents import read_records

FIELDS = ("id", "document", "summaries")


def main(paths: Sequence[str]) -> None:
    """Write every other record of the files into each half, in the working folder."""
    records = [record for path in paths for record in read_records(Path(path))]
    rows = [{name: record[name] for name in FIELDS} for record in records]
    for half in (0, 1):
        atomic_write(Path(f"half-{half}.jsonl"), "".join(json.dumps(row) + "\n" for row in rows[half::2]))


if __name__ == "__main__":
    main(sys.argv[1:])
