"""Store a parser with a fine-tuned encoder in a few megabytes: changes of the encoder at a low rank, in 8 bits.

    python -m experiments.studies.parser_training.low_rank runs/finetuned_parser --rank 48 --out weights

The folder can be given to `precis parse --parser` like any parser.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils import parametrize

from datamodules.documents import UserError
from lightning_modules.discourse_parser.parser import DiscourseParser
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


@torch.no_grad()
def copy_to_low_rank(source: nn.Module, target: nn.Module) -> float:
    """Copy the weights of a model to one with low-rank changes, the nearest of that rank (truncated SVD).

    Args:
        source: the model, without low-rank changes.
        target: the same model after `add_low_rank_changes`, with pretrained weights W_0.

    Returns:
        Fraction of the squared change that is retained, sum ||A B||^2 / sum ||W - W_0||^2.
    """
    modules = dict(target.named_modules())
    weights = dict(source.named_parameters())
    retained = total = 0.0
    for name, value in weights.items():
        module = modules[name.rpartition(".")[0]]
        if not (name.endswith(".weight") and parametrize.is_parametrized(module, "weight")):
            target.get_parameter(name).copy_(value)
            continue
        change = module.parametrizations.weight[0]
        rank = change.left.shape[1]
        left, sizes, right = torch.linalg.svd(value - module.parametrizations.weight.original, full_matrices=False)
        root = sizes[:rank].sqrt()
        change.left.copy_(left[:, :rank] * root)
        change.right.copy_(root.unsqueeze(1) * right[:rank])
        retained += float((sizes[:rank] ** 2).sum())
        total += float((sizes**2).sum())
    return retained / total if total else 1.0


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
