"""Shared parts of pictures: figures, heat maps with rows and columns numbered from 1, and self-contained HTML pages."""

from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from precis.files.templates import template


def html_page(title: str, body: str) -> str:
    """Return a page that needs no other file, with a title, which is escaped here, and the HTML below it."""
    return template("precis.files", "page.html").render(title=title, body=Markup(body)) + "\n"


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of a size in inches, which pyplot does not register, so that it is freed when it is not used."""
    return Figure(figsize=(width, height), layout="constrained")


def heat_map(axes: Axes, values: np.ndarray, **options: Any) -> AxesImage:
    """Draw values [rows, columns] with rows and columns numbered from 1; options are those of `Axes.imshow`."""
    rows, columns = values.shape
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return axes.imshow(values, extent=(0.5, columns + 0.5, rows + 0.5, 0.5), interpolation="nearest", **options)
