"""Pictures of texts in scripts for which no font is installed."""

import warnings

import numpy as np

from callbacks import figure_fonts
from callbacks.previews import draw_attention

IN_NO_FONT = "\ue000"  # of private use


def drawn_with_warnings(path, word):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        draw_attention(path, [word, "b"], ["c"], np.full((1, 2), 0.5), np.ones(2))
    assert path.read_bytes().startswith(b"\x89PNG")
    return [str(warning.message) for warning in recorded]


def test_one_warning_tells_of_all_characters_without_a_font(tmp_path):
    figure_fonts._warn_of_missing_fonts.cache_clear()
    assert drawn_with_warnings(tmp_path / "latin.png", "ä") == []
    (message,) = drawn_with_warnings(tmp_path / "first.png", IN_NO_FONT)
    assert "install a font of that script" in message
    assert drawn_with_warnings(tmp_path / "second.png", IN_NO_FONT) == []
