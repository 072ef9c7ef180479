"""Corpora in local files."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from glob import glob
from pathlib import Path
from typing import Any

from datamodules.corpora.corpus import Corpus
from datamodules.corpora.fields import Fields, NamesOrNone
from datamodules.corpora.readers import file_type, read_rows
from datamodules.documents import BadRecord, Record, UserError
from datamodules.text.hashing import file_digest
from datamodules.text.lines import readable_name


class Files(Corpus):
    """JSON Lines, Parquet or CSV files, plain or compressed (see `readers.read_rows`).

    Args:
        train: path, pattern with `*`, or a list of them.
        val: the same.
        test: the same.
        split: fraction of `train` to use for validation, if there is no file for `val`. The choice depends only on the
            text, so that duplicates stay in one split.
        fields: arguments of `Fields`.

    Raises:
        UserError: if an argument has an invalid value; on reading, if a file is missing, truncated or of unknown type.
    """

    def __init__(
        self,
        train: NamesOrNone = None,
        val: NamesOrNone = None,
        test: NamesOrNone = None,
        split: float | None = None,
        **fields: Any,
    ) -> None:
        if split is not None and (not 0 < split < 1 or val or not train):
            raise UserError(
                f"corpus.split {split}: must be the fraction of `train` to use as `val`, between 0 and 1; it needs "
                "`train` and no file for `val`"
            )
        self.val_share = split  # None if no validation documents are taken from `train`
        val = train if split else val  # with `split`, both read all files of `train`, and each keeps its documents
        sources = {"train": train, "val": val, "test": test}
        self.paths = {name: [paths] if isinstance(paths, str) else paths for name, paths in sources.items() if paths}
        self.fields = Fields(**fields)

    def splits(self) -> list[str]:
        return list(self.paths)

    def title(self, split: str) -> str:
        return f"Files {split} ({', '.join(self.paths[split])})"

    def records(self, split: str) -> Iterator[Record | BadRecord]:
        sizes: Counter[str] = Counter()  # by split, number of records
        names: Counter[str] = Counter()  # of files, without their suffixes, such as `.jsonl.gz`
        for path in self._files(split):
            stem = readable_name(path.name.split(".")[0])
            names[stem] += 1
            if names[stem] > 1:  # `b/part.jsonl` after `a/part.jsonl`: their records have different ids
                stem += f".{names[stem]}"
            for number, row in read_rows(path, self.fields.names):
                record = row  # a `BadRecord` stays as it is
                if not isinstance(row, BadRecord):
                    record = self.fields.record(row, f"{path}:{number}", f"{stem}-{number}")
                split_of_record = self._split_of(record) if self._shares_file(split) else split
                sizes[split_of_record] += 1
                if split_of_record == split:
                    yield record
        if sizes and not sizes[split]:
            problem = f"corpus.split {self.val_share} leaves none of the {sizes.total():,} records for it"
            raise UserError(f"{self.title(split)}: {problem}; change it, or name a file for `val`")

    def _shares_file(self, split: str) -> bool:
        """Return whether training and validation documents are in the same file, and a split is one of the two."""
        return self.val_share is not None and split in ("train", "val")

    def _split_of(self, record: Record | BadRecord) -> str:
        """Return the split of a record in a file with training and validation documents."""
        if isinstance(record, BadRecord):
            return "train"  # in one of the two splits, so that it is reported once
        # "surrogatepass": halves of surrogate pairs are no error here, as `make_document` reports them later
        digest = hashlib.sha256(json.dumps(record.parts).encode("utf-8", "surrogatepass")).digest()
        uniform = int.from_bytes(digest[:8])  # pseudo-random number below 2**64 that depends on the text alone
        return "val" if uniform < self.val_share * 2**64 else "train"

    def fingerprint(self, split: str) -> str:  # identifies content and arguments, for the cache key
        digests = [[path.name, file_digest(path)] for path in self._files(split)]
        share = f" {split} of {self.val_share}" if self._shares_file(split) else ""
        return f"files {digests} {sorted(asdict(self.fields).items())}{share}"

    def _files(self, split: str) -> list[Path]:
        """Return the files of a split with patterns expanded; all are checked before any is read."""
        files = []
        for pattern in self.paths[split]:
            paths = [Path(path) for path in sorted(glob(pattern))] if "*" in pattern else [Path(pattern)]
            if not paths or not all(path.is_file() for path in paths):
                raise UserError(f"{pattern}: no such file; check the path of `{split}`")
            files += paths
        for path in files:
            file_type(path)  # raises an error if the type is unknown
        return files
