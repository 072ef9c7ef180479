"""Store a parser with a fine-tuned encoder in a few megabytes: changes of the encoder at a low rank, in 8 bits.

    python -m experiments.studies.parser_training.low_rank runs/finetuned_parser --rank 48 --out weights

The folder can be given to `precis parse --parser` like any parser.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from datamodules.documents import UserError
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.networks.low_rank import copy_to_low_rank
from precis.config.parsers import load_parser


def low_rank_parser(parser: DiscourseParser, rank: int, **options: float) -> tuple[DiscourseParser, float]:
    """Return the parser with changes of the encoder at a low rank, and the fraction of the squared change retained.

    Args:
        parser: a parser with a fine-tuned encoder.
        rank: the rank.
        options: settings of the parser that are replaced.

    Raises:
        UserError: if its encoder is not fine-tuned, or has low-rank changes.
    """
    settings = parser.settings
    if parser.subwords is None or settings["frozen"] or settings["lora_rank"]:
        raise UserError("the encoder of this parser has no full-rank changes; name a fine-tuned parser")
    target = DiscourseParser.of_settings(**settings | {"lora_rank": rank} | options)
    retained = copy_to_low_rank(parser, target)
    return target.eval(), retained


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    command = argparse.ArgumentParser(prog="python -m experiments.studies.parser_training.low_rank", allow_abbrev=False)
    command.add_argument("parser", help="run folder, checkpoint or folder of weights of a parser")
    command.add_argument("--rank", type=int, default=48, help="rank of the changes")
    command.add_argument("--temperature", type=float, help="class temperature; by default that of the parser")
    command.add_argument("--out", type=Path, required=True, help="folder to write")
    options = command.parse_args(arguments)
    try:
        parser = load_parser(options.parser)
        if not isinstance(parser, DiscourseParser):
            raise UserError(f"{options.parser}: not a chart parser; name a run of DiscourseParser")
        replaced = {} if options.temperature is None else {"class_temperature": options.temperature}
        smaller, retained = low_rank_parser(parser, options.rank, **replaced)
    except (UserError, ValueError) as error:
        raise SystemExit(f"error: {error}") from None
    smaller.save(options.out, bits=8)
    size = (options.out / "model.safetensors").stat().st_size / 1e6
    print(f"{options.out}: {size:.1f} MB, {retained:.1%} of the squared change of the encoder")


if __name__ == "__main__":
    main()
