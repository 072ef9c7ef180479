"""`precis truncation`: how much of its documents a config truncates."""

import sys
from collections.abc import Sequence

import yaml
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from datamodules.documents import UserError
from datamodules.summarization import SummarizationData
from datamodules.truncation import TruncationRow
from precis.config.shipped import resolve_configs
from precis.runs.run_folder import build
from precis.training.training import fit_parser


def truncation(arguments: list[str]) -> None:
    """`precis truncation --config CONFIG ...`: show how much of the documents of each split a config truncates.

    It takes the arguments of `precis fit`. Documents and features are cached; nothing is trained.
    """
    parser = fit_parser()
    config = yaml.safe_load(parser.dump(parser.parse_args(resolve_configs(arguments)), skip_none=False))
    _, data = build(config)
    if not isinstance(data, SummarizationData):
        raise UserError(f"{type(data).__name__} reads no documents to summarize; name a config of a summarizer")
    data.prepare_splits(data.corpus.splits())
    width = None if sys.stdout.isatty() else 200  # a file has no width
    Console(width=width).print(truncation_table([row for rows in data.truncation.values() for row in rows]))


def truncation_table(rows: Sequence[TruncationRow]) -> Table:
    """Return rows as a Markdown table."""
    table = Table(box=MARKDOWN)
    for name in ("split", "counted", "in all", "cut off", "share", "documents cut", "limit"):
        table.add_column(name, justify="left" if name in ("split", "counted", "limit") else "right")
    for row in rows:
        documents = f"{row.documents_cut:,} of {row.documents:,}"
        numbers = (f"{row.total:,}", f"{row.left_out:,}", f"{100 * row.share:.1f} %", documents)
        table.add_row(row.split, row.counted, *numbers, row.limit)
    return table
