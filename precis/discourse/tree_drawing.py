"""Drawing of trees as text and as SVG. EDUs are numbered from 1, as in treebanks."""

import textwrap
from collections.abc import Sequence
from itertools import accumulate
from xml.sax.saxutils import escape

from markupsafe import Markup
from rich.cells import cell_len

from datamodules.discourse.trees import SPAN, Node, Tree
from datamodules.text.lines import isolated, one_line, shorten
from precis.files.templates import template

# lengths in pixels
ROW = 26  # height of a row of one line
LINE = 16  # height of each further line of a row
TOP = 40  # space above the first row
MARGIN = 12  # space to the left of the root
MAX_STEP = 22  # maximum distance between levels
MAX_TREE_WIDTH = 700  # maximum width of the whole tree
LETTER = 6.0  # approximate width of a letter of a relation
EDU_LETTER = 7.2  # approximate width of a letter of an EDU
MIN_WIDTH = 40  # characters of a line of the outline, at least


def draw_text(tree: Tree, edu_texts: Sequence[str], width: int = 100) -> str:
    """Draw a tree, binary or n-ary, as an outline with a line per node or EDU, each with N (nucleus) or S (satellite).

    Nodes show relation, nuclearity and range of EDUs; EDUs show number and text. `width`: maximum characters of a line.
    If the branches drawn before a deep node exceed half the width, their left part is replaced by the node's level.
    """
    if width < MIN_WIDTH:
        raise ValueError(f"a tree needs a width of at least {MIN_WIDTH} characters, not {width}")
    lines = []
    # stack, depth first: (first, last EDU) of a node, N or S, prefix of its own line, common prefix of the lines below
    pending = [((0, tree.size - 1), "", "", "")]
    while pending:
        (start, end), letter, branch, below = pending.pop()
        node = tree.node(start, end)  # None for an EDU
        label = f"[{start + 1}] {one_line(edu_texts[start])}"  # of an EDU
        if node is not None:
            label = f"{_label(node)} ({node.nuclearity}) {node.start + 1}–{node.end + 1}"
            last = len(node.starts) - 1
            for index in reversed(range(last + 1)):  # last child first, so that the first child is popped next
                mark, continuation = ("└─ ", "   ") if index == last else ("├─ ", "│  ")
                pending.append((node.children[index], node.nuclearity[index], below + mark, below + continuation))
        role = f"{letter} " if letter else ""  # nuclearity in the parent; the root has none
        lines.append(shorten(_shorten_branch(branch, width // 2) + role + label, width))
    return "\n".join(lines) + "\n"


def draw_svg(
    tree: Tree, edu_texts: Sequence[str], letters: int = 100, wrap: bool = False, tree_width: int = MAX_TREE_WIDTH
) -> str:
    """Draw a tree, binary or n-ary, as a standalone SVG image: levels from left to right, one row per EDU.

    A node is drawn between the rows of its first two children. No two nodes share this position, so that labels do not
    overlap, and the image grows by 26 pixels per EDU. Lines to nuclei are thick and blue, to satellites thin and
    orange. Tooltips show whole EDUs.

    Args:
        tree: the tree.
        edu_texts: text of each EDU.
        letters: maximum number of characters of a displayed EDU, or of each of its lines with `wrap`.
        wrap: whether a longer EDU continues on further lines instead of being shortened.
        tree_width: maximum width of the tree, without texts, in pixels.
    """
    levels = {(0, tree.size - 1): 0}  # distance from the root by (first EDU, last EDU) of a node; one EDU: (i, i)
    for node in tree.nodes:
        levels |= {child: levels[node.start, node.end] + 1 for child in node.children}
    step = min(MAX_STEP, tree_width / max(1, max(levels.values())))  # pixels between levels
    left = {extent: MARGIN + step * level for extent, level in levels.items()}  # x of each node and EDU
    texts = [one_line(text) for text in edu_texts]
    numbered = [f"{edu + 1}  {isolated(text)}" for edu, text in enumerate(texts)]
    lines = [textwrap.wrap(text, letters) if wrap else [shorten(text, letters)] for text in numbered]
    # y of the upper edge of each row (EDU), and of the lower edge of the last one
    edges = list(accumulate((ROW + LINE * (len(row) - 1) for row in lines), initial=TOP))
    shapes, rightmost = [], left[0, 0] if tree.size == 1 else 0.0  # rightmost: where labels of nodes end
    for node in tree.nodes:
        x, label = left[node.start, node.end], _label(node)
        rightmost = max(rightmost, x + 8 + LETTER * len(label))
        y = _y_of(tree, node.start, node.end, edges)
        for child, letter in zip(node.children, node.nuclearity, strict=True):  # a vertical, then a horizontal line
            end = f"V{_y_of(tree, *child, edges)}H{left[child]:.1f}"
            shapes.append(f'<path class="{letter}" d="M{x:.1f} {y}{end}"/>')
        shapes.append(f'<text x="{x + 5:.1f}" y="{y + 4:.1f}">{escape(label)}</text>')
    column = max(rightmost, max(left.values()) + step)  # x of the texts of EDUs
    for edu, text in enumerate(texts):
        shapes.append(f'<path class="guide" d="M{left[edu, edu]:.1f} {_y_of(tree, edu, edu, edges)}H{column:.1f}"/>')
        spans = "".join(
            f'<tspan x="{column + 6:.1f}" y="{edges[edu] + ROW / 2 + 4 + LINE * number}">{escape(line)}</tspan>'
            for number, line in enumerate(lines[edu])
        )
        shapes.append(f'<text class="edu">{spans}<title>{escape(text)}</title></text>')
    longest = max(cell_len(line) for row in lines for line in row)  # a Chinese character counts as two letters
    size = {"width": round(column + 20 + EDU_LETTER * (longest + 3)), "height": round(edges[-1] + 10)}
    return template("precis.discourse", "tree.svg").render(shapes=Markup("\n".join(shapes)), **size) + "\n"


def _shorten_branch(branch: str, limit: int) -> str:
    """Return the branches drawn before a node; if longer than `limit`, as `12… ` for level 12 and their right part."""
    if len(branch) <= limit:
        return branch
    level = f"{len(branch) // 3}… "  # each level has a branch of three characters
    return level + branch[len(branch) - limit + len(level) :]


def _label(node: Node) -> str:
    """Return the relation of a node, or the different relations of its children, separated by commas."""
    return ", ".join(dict.fromkeys(name for name in node.relations if name != SPAN))  # SPAN: a nucleus's placeholder


def _y_of(tree: Tree, start: int, end: int, edges: Sequence[float]) -> float:
    """Return the y position of an EDU (its first line) or node (between two children), by the upper `edges` of rows."""
    node = tree.node(start, end)  # None for an EDU
    return edges[start] + ROW / 2 if node is None else edges[node.starts[1]]
