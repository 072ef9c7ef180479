"""Parsers by name, for commands and for the DataModules that are given a name in the place of a parser."""

from pathlib import Path

from pytorch_lightning import LightningModule

from datamodules.documents import CorpusError
from datamodules.parsing import name_parsers


def _shipped() -> LightningModule:
    from lightning_modules.discourse_parser import DiscourseParser

    return DiscourseParser.shipped()


def _trained(path: Path) -> LightningModule:
    """A parser of a run folder, of a checkpoint, or of a folder that `DiscourseParser.save` wrote."""
    from experiments.run_folder import best_checkpoint, read_checkpoint
    from lightning_modules.discourse_parser import DiscourseParser

    if (path / "model.safetensors").is_file():
        return DiscourseParser.load(path)
    path = best_checkpoint(path) if path.is_dir() else path
    read_checkpoint(path)  # says what is wrong with a file that is none
    return DiscourseParser.from_checkpoint(path)


def _small() -> LightningModule:
    from lightning_modules.discourse_parser import SMALL, DiscourseParser

    return DiscourseParser.load(SMALL)


def _right_branching() -> LightningModule:
    from lightning_modules.right_branching import RightBranchingParser

    return RightBranchingParser()


def _isanlp() -> LightningModule:
    from lightning_modules.isanlp import IsaNLPParser

    return IsaNLPParser()


PARSERS = {"default": _shipped, "small": _small, "right_branching": _right_branching, "isanlp_rst": _isanlp}


def load_parser(name: str, rows: str = "side", band: int = 128) -> LightningModule:
    """A parser (`datamodules.parsing.Parser`), loaded only when it is asked for.

    Args:
        name: one of `PARSERS`, or a run folder, checkpoint or folder of weights of `lightning_modules.DiscourseParser`.
        rows: reading of the LDD.
        band: half-width of the band that it is to give.

    Raises:
        CorpusError: if there is no such parser, or its checkpoint is broken.
    """
    if name in PARSERS:
        parser = PARSERS[name]()
    elif Path(name).exists():
        parser = _trained(Path(name))
    else:
        raise CorpusError(f"no parser {name!r}: there are {', '.join(PARSERS)}; or give the folder of a parser's run")
    parser.rows, parser.band = rows, band
    return parser.eval()


name_parsers(load_parser)
