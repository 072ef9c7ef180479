"""Drawing of a parse: the tree as text and SVG, the distribution as a heat map."""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console

from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.text.lines import counted, one_line, printable
from precis.discourse.tree_drawing import draw_svg, draw_text
from precis.files import figures

LARGEST_HEAT_MAP = 2000  # EDUs to each side


def draw(parse: DiscourseParse, request: ParseRequest, svg: Path | None = None, png: Path | None = None) -> None:
    """Print the best tree in the width of the terminal, and write an SVG of it and a heat map as PNG if requested."""
    texts = [request.text[start:end] for start, end in parse.edus.tolist()]
    tree = parse.best_tree()
    print(printable(draw_text(tree, texts, max(40, Console().width))))
    if svg is not None:
        svg.write_text(draw_svg(tree, texts), encoding="utf-8")
        print(f"{svg}: the tree", file=sys.stderr)
    if png is not None:
        heat_map(parse).savefig(png, format="png")
        print(f"{png}: a heat map of the distribution", file=sys.stderr)


def summed(parse: DiscourseParse) -> torch.Tensor:
    """Return the probability that i is the nucleus of j under any relation, [E, E]; NaN for pairs outside the band."""
    size, half = parse.size, parse.half_width
    pairs = torch.full((size, size), float("nan"))
    row = torch.arange(size)[:, None].expand(-1, 2 * half + 1)                           # [E, 2b + 1]
    column = row + torch.arange(-half, half + 1)
    real = (column >= 0) & (column < size)
    pairs[row[real], column[real]] = parse.band(half).sum(-1)[real]
    return pairs


def heat_map(parse: DiscourseParse) -> Figure:
    """Return a heat map with nuclei as rows and other EDUs as columns; grey outside the band."""
    side = min(20.0, 3 + parse.size / 8)
    figure = figures.new_figure(side + 1, side)
    axes = figure.add_subplot()
    axes.set_facecolor("0.8")
    image = figures.heat_map(axes, summed(parse).numpy(), vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="EDU", ylabel="is the nucleus of EDU")
    title = f"{one_line(parse.id)}: {counted(parse.size, 'EDU')}"
    axes.set_title(title, parse_math=False)  # an id may contain "$", which would start a formula
    figure.colorbar(image, label="probability, over all relations")
    return figure
