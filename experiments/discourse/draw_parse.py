"""One document's parse, drawn: its tree as text and SVG, its distribution as a heat map."""
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console

from datamodules.discourse.drawing import draw_svg, draw_text
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.text.lines import one_line
from datamodules.text.printable import printable
from experiments.pictures import drawing

LARGEST_HEAT_MAP = 2000  # EDUs to each side


def draw(found: DiscourseParse, request: ParseRequest, svg: Path | None = None, png: Path | None = None) -> None:
    """Prints the best tree, as wide as the terminal.

    Args:
        found: the parse.
        request: what was parsed.
        svg: file for the tree as an image.
        png: file for the heat map.
    """
    texts = [request.text[start:end] for start, end in found.edus.tolist()]
    tree = found.best_tree()
    print(printable(draw_text(tree, texts, max(40, Console().width))))
    if svg is not None:
        Path(str(svg)).write_text(draw_svg(tree, texts), encoding="utf-8")
    if png is not None:
        heat_map(found).savefig(Path(str(png)), format="png")


def summed(found: DiscourseParse) -> torch.Tensor:
    """The probability that i is the nucleus of j under any relation, [E, E]; NaN for pairs that are not stored."""
    size, half = found.size, found.half_width
    pairs = torch.full((size, size), float("nan"))
    row = torch.arange(size)[:, None].expand(-1, 2 * half + 1)
    column = row + torch.arange(-half, half + 1)
    real = (column >= 0) & (column < size)
    pairs[row[real], column[real]] = found.band(half).sum(-1)[real]
    return pairs


def heat_map(found: DiscourseParse) -> Figure:
    """EDU x EDU, with the nucleus's EDU downwards; grey where nothing is stored."""
    side = min(20.0, 3 + found.size / 8)
    figure = drawing.new_figure(side + 1, side)
    axes = figure.add_subplot()
    axes.set_facecolor("0.8")
    image = drawing.heat_map(axes, summed(found).numpy(), vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="EDU", ylabel="is the nucleus of EDU")
    # An id with "$" in it is no formula.
    axes.set_title(f"{one_line(found.id)}: {found.size} EDUs", parse_math=False)
    figure.colorbar(image, label="probability, over all relations")
    return figure
