"""Fonts of pictures with text in any script."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from matplotlib import font_manager, rc_context
from pytorch_lightning.utilities import rank_zero_warn

# Matplotlib's own font has Latin, Cyrillic, Greek, Arabic and Hebrew letters; these have the ones of other scripts.
_OTHER_SCRIPTS = re.compile(r"CJK|WenQuanYi|PingFang|Hiragino|YaHei|SimHei|Noto Sans|Unifont|Arial Unicode")
_MISSING = re.compile(r"Glyph \d+ \(.*\) missing from font")


@contextmanager
def fonts_of_all_scripts() -> Iterator[None]:
    """Draw characters that Matplotlib's own font lacks with installed fonts, and warn once where none has them."""
    with warnings.catch_warnings(record=True) as recorded, rc_context({"font.family": _families()}):
        yield
    others = [warning for warning in recorded if not _MISSING.match(str(warning.message))]
    for warning in others:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if len(others) < len(recorded):
        _warn_of_missing_fonts()


@cache
def _families() -> list[str]:
    return ["sans-serif", *filter(_OTHER_SCRIPTS.search, font_manager.get_font_names())]


@cache
def _warn_of_missing_fonts() -> None:
    rank_zero_warn(
        "pictures have boxes in place of characters that no installed font has; install a font of that script, such as "
        "Noto Sans CJK, and remove Matplotlib's cache of fonts (~/.cache/matplotlib)"
    )
