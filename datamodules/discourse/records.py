"""`TreebankDocument`: a text in EDUs with its RST tree, and what goes wrong on the way there."""

from dataclasses import dataclass, field

from datamodules.discourse.trees import Tree
from datamodules.documents import CorpusError

Offsets = tuple[int, int]


class TreebankError(CorpusError):
    """A treebank that cannot be read or used: one line with what is wrong, where, and what to do."""


@dataclass(frozen=True)
class TreebankDocument:
    """A text, its segmentation, and its tree if it has one.

    Offsets are of characters, the first and the one after the last: `text[start:end]`.

    Attributes:
        id: unique within a treebank.
        text: the whole text.
        edus: offsets of the elementary discourse units, in order.
        sentences: offsets of the sentences; empty where the file does not tell.
        paragraphs: offsets of the paragraphs; empty where the file does not tell.
        tree: over the EDUs, n-ary where the annotation is; `tree.binary()` has two children a node.
        genre: kind of text, as the treebank calls it; empty where it does not tell.
        licence: as the treebank calls it; empty where it does not tell.
    """

    id: str
    text: str
    edus: list[Offsets]
    sentences: list[Offsets] = field(default_factory=list)
    paragraphs: list[Offsets] = field(default_factory=list)
    tree: Tree | None = None
    genre: str = ""
    licence: str = ""

    @property
    def edu_texts(self) -> list[str]:
        """The text of each EDU."""
        return [self.text[start:end] for start, end in self.edus]


def checked(document: TreebankDocument, where: str) -> TreebankDocument:
    """The document, if its EDUs part its text and its tree covers them.

    Args:
        document: what was read.
        where: file and line, or another place that a person can look up.

    Raises:
        TreebankError: if there is no EDU; if EDUs, sentences or paragraphs are empty, overlap or lie outside the text;
            if there is text that belongs to no EDU; if the tree has another number of EDUs.
    """
    place = f"{where}: {document.id}"
    if not document.edus:
        raise TreebankError(f"{place}: there is no EDU; leave out documents without text")
    for name in ("edus", "sentences", "paragraphs"):
        _check_offsets(getattr(document, name), name, len(document.text), place)
    before = 0
    for number, (start, end) in enumerate([*document.edus, (len(document.text), 0)]):
        between = document.text[before:start]
        if between.strip():
            raise TreebankError(
                f"{place}: {between.strip()[:40]!r} (characters {before} to {start}) belongs to no EDU; "
                f"one is missing before EDU {number}"
            )
        before = end
    if document.tree is not None and document.tree.size != len(document.edus):
        raise TreebankError(f"{place}: the tree has {document.tree.size} EDUs, the text {len(document.edus)}")
    return document


def _check_offsets(offsets: list[Offsets], name: str, length: int, place: str) -> None:
    before = 0
    for number, (start, end) in enumerate(offsets):
        what = f"{place}: {name}[{number}] is characters {start} to {end}"
        if not 0 <= start < end <= length:
            raise TreebankError(f"{what}, which is empty or outside the text of {length} characters")
        if start < before:
            raise TreebankError(f"{what}, which overlaps the one before, up to {before}")
        before = end


def joined(texts: list[str]) -> tuple[str, list[Offsets]]:
    """A text of EDUs with a space between them, for treebanks that keep no other; and where each is in it."""
    offsets, at = [], 0
    for text in texts:
        offsets.append((at, at + len(text)))
        at += len(text) + 1
    return " ".join(texts), offsets
