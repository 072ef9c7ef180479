"""Trees as text for a terminal and as SVG. EDUs are numbered from 1, as in treebanks."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from datamodules.discourse.trees import SPAN, Node, Tree
from datamodules.text.lines import cut, one_line

ROW, TOP = 26, 40  # height of an EDU's row, and what stands above the first, in pixels
WIDEST_STEP, TREE_WIDTH = 22, 700  # between levels; what the levels of a deep tree share
LETTER = 6.0  # rough width of a letter of 11 pixels
NUCLEUS, SATELLITE = "#1b4f8a", "#c0561a"


def draw_text(tree: Tree, edu_texts: Sequence[str], width: int = 100) -> str:
    """The tree as an outline, a line a node or EDU, each with N or S for what it is to its parent.

    A node shows its relation, its nuclearity and its EDUs; an EDU its number and its text, cut to the width. Where a
    tree is so deep that its branches would fill half the width, their left part is cut, and the level stands instead.

    Args:
        tree: binary or n-ary.
        edu_texts: one text an EDU.
        width: of a line, in characters; at least 40.

    Raises:
        ValueError: if there are not as many texts as EDUs, or the width is too small.
    """
    _check(tree, edu_texts)
    if width < 40:
        raise ValueError(f"a tree needs a width of at least 40 characters, not {width}")
    lines = []
    pending = [((0, tree.size - 1), "", "", "")]
    while pending:
        (start, end), letter, branch, below = pending.pop()
        node = tree.node(start, end)
        what = f"[{start + 1}] {one_line(edu_texts[start])}" if node is None else _title(node)
        lines.append(cut(_shortened(branch, width // 2) + (f"{letter} " if letter else "") + what, width))
        if node is None:
            continue
        last = len(node.starts) - 1
        for place in reversed(range(last + 1)):
            mark, rest = ("└─ ", "   ") if place == last else ("├─ ", "│  ")
            pending.append((node.children[place], node.nuclearity[place], below + mark, below + rest))
    return "\n".join(lines) + "\n"


def draw_svg(tree: Tree, edu_texts: Sequence[str], letters: int = 100) -> str:
    """The tree as a standalone SVG image: levels from left to right, a row an EDU.

    A node stands on the line between its first two children, and no other node does: labels cannot overlap, and the
    image grows by 26 pixels an EDU. Nuclei hang on thick blue lines, satellites on thin orange ones. The whole text of
    an EDU shows where the pointer rests on it.

    Args:
        tree: binary or n-ary.
        edu_texts: one text an EDU.
        letters: at which EDUs are cut.

    Raises:
        ValueError: if there are not as many texts as EDUs.
    """
    _check(tree, edu_texts)
    levels = _levels(tree)
    step = min(WIDEST_STEP, TREE_WIDTH / max(1, max(levels.values())))
    left = {extent: 12 + step * level for extent, level in levels.items()}
    shapes, rightmost = [], left[0, 0] if tree.size == 1 else 0.0
    for node in tree.nodes:
        x, label = left[node.start, node.end], _label(node)
        rightmost = max(rightmost, x + 8 + LETTER * len(label))
        shapes += _branches(tree, node, left)
        shapes.append(f'<text x="{x + 5:.1f}" y="{_height(tree, node.start, node.end) + 4:.1f}">{escape(label)}</text>')
    column = max(rightmost, max(left.values()) + step)
    texts = [one_line(text) for text in edu_texts]
    for edu, text in enumerate(texts):
        y = _height(tree, edu, edu)
        shapes.append(f'<path class="guide" d="M{left[edu, edu]:.1f} {y}H{column:.1f}"/>')
        shown = escape(cut(f"{edu + 1}  {text}", letters))
        shapes.append(f'<text class="edu" x="{column + 6:.1f}" y="{y + 4}">{shown}<title>{escape(text)}</title></text>')
    longest = max(min(letters, len(text) + 6) for text in texts)
    return _page(shapes, column + 20 + 7.2 * longest, TOP + ROW * tree.size + 10)


def _check(tree: Tree, edu_texts: Sequence[str]) -> None:
    if len(edu_texts) != tree.size:
        raise ValueError(f"{len(edu_texts)} texts for a tree of {tree.size} EDUs")


def _shortened(branch: str, limit: int) -> str:
    """The lines before a node, or the level and the right part of them."""
    if len(branch) <= limit:
        return branch
    level = f"{len(branch) // 3}… "
    return level + branch[len(branch) - limit + len(level) :]


def _title(node: Node) -> str:
    return f"{_label(node)} ({node.nuclearity}) {node.start + 1}–{node.end + 1}"


def _label(node: Node) -> str:
    """The relation of a node; all of them where its children have several."""
    return ", ".join(dict.fromkeys(name for name in node.relations if name != SPAN))


def _levels(tree: Tree) -> dict[tuple[int, int], int]:
    """How far each node and EDU is from the root."""
    levels = {(0, tree.size - 1): 0}
    for node in tree.nodes:
        levels |= {child: levels[node.start, node.end] + 1 for child in node.children}
    return levels


def _height(tree: Tree, start: int, end: int) -> float:
    """Where an EDU or a node stands: in the middle of its row, or between the rows of its first two children."""
    node = tree.node(start, end)
    return TOP + (ROW * start + ROW / 2 if node is None else ROW * node.starts[1])


def _branches(tree: Tree, node: Node, left: dict[tuple[int, int], float]) -> list[str]:
    """Lines from a node to each child: down or up, then to the right."""
    x, y = left[node.start, node.end], _height(tree, node.start, node.end)
    lines = []
    for child, letter in zip(node.children, node.nuclearity, strict=True):
        lines.append(f'<path class="{letter}" d="M{x:.1f} {y}V{_height(tree, *child)}H{left[child]:.1f}"/>')
    return lines


def _page(shapes: list[str], width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    style = (
        "text{font:11px sans-serif;fill:#333}.edu{font-size:13px;fill:#000}path{fill:none}"
        f".N{{stroke:{NUCLEUS};stroke-width:2.4}}.S{{stroke:{SATELLITE};stroke-width:1.2}}"
        ".guide{stroke:#ccc;stroke-width:1;stroke-dasharray:1 3}"
    )
    legend = (
        '<path class="N" d="M12 18H36"/><text x="42" y="22">nucleus</text>'
        '<path class="S" d="M102 18H126"/><text x="132" y="22">satellite</text>'
    )
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    return "\n".join([head, f"<style>{style}</style>", background, legend, *shapes, "</svg>", ""])
