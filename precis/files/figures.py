"""Shared parts of pictures: figures, heat maps with rows and columns numbered from 1, and self-contained HTML pages."""

import base64
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

STYLE = """:root { color-scheme: light dark; --line: #8886; --mark: #ffd54a66; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
body { overflow-wrap: break-word; }
section { border-top: 1px solid var(--line); padding: 1rem 0; overflow-x: auto; } h2 { font-size: 1.1rem; }
.small { font-size: .85rem; opacity: .8; } img { max-width: 100%; } mark { background: var(--mark); color: inherit; }
table { border-collapse: collapse; } .number { text-align: right; } .selected { background: var(--mark); }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line); }
"""


def html_page(title: str, body: str) -> str:
    """Return a page that needs no other file.

    Args:
        title: text; escaped here.
        body: HTML below the title.
    """
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    page = f"<head>{head}\n<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body>"
    return f'<!doctype html>\n<html lang="en">{page}</html>\n'


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of a size in inches, apart from pyplot's state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure as SVG or PNG, the same bytes each time; options are those of `Figure.savefig`."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "precis"}):  # text as text: a third of the size
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, **options)


def png_element(png: bytes, description: str) -> str:
    """Return an HTML image that holds a PNG."""
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def heat_map(axes: Axes, values: np.ndarray, **options: Any) -> AxesImage:
    """Draw a table of values with rows and columns numbered from 1; options are those of `Axes.imshow`."""
    rows, columns = values.shape
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return axes.imshow(values, extent=(0.5, columns + 0.5, rows + 0.5, 0.5), interpolation="nearest", **options)
