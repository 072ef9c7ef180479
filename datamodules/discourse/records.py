"""`TreebankDocument`: a text with its EDUs and RST tree, and its validation."""

from dataclasses import dataclass, field, replace
from itertools import accumulate

from datamodules.discourse.trees import Tree
from datamodules.documents import UserError
from datamodules.text.language import join_sentences, language_of, space_after
from datamodules.text.lines import lone_surrogate
from datamodules.text.offsets import sentence_offsets

Offsets = tuple[int, int]
UNSPACED_LANGUAGES = ("zh", "yue", "wuu", "ja")


class TreebankError(UserError):
    """Error in a treebank: one line with problem, place and remedy."""


@dataclass(frozen=True)
class TreebankDocument:
    """Text with its segmentation and, if annotated, its RST tree; offsets are in characters, `text[start:end]`."""

    id: str  # unique within a treebank
    text: str  # the whole text
    edus: list[Offsets]  # offsets of the elementary discourse units, in order
    sentences: list[Offsets] = field(default_factory=list)  # offsets of the sentences; empty if the file has none
    paragraphs: list[Offsets] = field(default_factory=list)  # offsets of the paragraphs; empty if the file has none
    tree: Tree | None = None  # RST tree over the EDUs, possibly n-ary; `tree.binary()` has two children per node
    genre: str = ""  # genre as named by the treebank; empty if unknown
    licence: str = ""  # licence as named by the treebank; empty if unknown

    @property
    def edu_texts(self) -> list[str]:
        """The text of each EDU."""
        return [self.text[start:end] for start, end in self.edus]


def validate_document(document: TreebankDocument, where: str) -> TreebankDocument:
    """Return a document unchanged if EDUs cover its text, and its tree the EDUs; `where` is its file, for messages.

    Raises:
        TreebankError: if id or text is not valid Unicode; if there is no EDU; if EDUs, sentences or paragraphs are
            empty, overlap or lie outside the text; if text belongs to no EDU; if the tree has another number of EDUs.
    """
    if code := lone_surrogate(document.id + document.text):  # UTF-8 cannot represent it
        raise TreebankError(f"{where}: half of a surrogate pair, {code}, is not text; fix or leave out this document")
    location = f"{where}: {document.id}"
    if not document.edus:
        raise TreebankError(f"{location}: there is no EDU; leave out documents without text")
    for name in ("edus", "sentences", "paragraphs"):
        _check_offsets(getattr(document, name), name, len(document.text), location)
    end_before = 0
    end_of_text = (len(document.text), len(document.text))  # as a last EDU, to find text after the EDUs, too
    for number, (start, end) in enumerate([*document.edus, end_of_text]):
        if between := document.text[end_before:start].strip():  # must be whitespace
            place = f"{between[:40]!r} (characters {end_before} to {start})"
            raise TreebankError(f"{location}: {place} belongs to no EDU; one is missing before EDU {number}")
        end_before = end
    if document.tree is not None and document.tree.size != len(document.edus):
        raise TreebankError(f"{location}: the tree has {document.tree.size} EDUs, the text has {len(document.edus)}")
    return document


def _check_offsets(offsets: list[Offsets], name: str, length: int, location: str) -> None:
    """Raise TreebankError if offsets of the field `name` are empty, overlap, or lie outside a text of `length`."""
    end_before = 0
    for number, (start, end) in enumerate(offsets):
        described = f"{location}: {name}[{number}] is characters {start} to {end}"
        if not 0 <= start < end <= length:
            raise TreebankError(f"{described}, which is empty or outside the text of {length} characters")
        if start < end_before:
            raise TreebankError(f"{described}, which overlaps the one before, up to {end_before}")
        end_before = end


def join_edus(texts: list[str]) -> tuple[str, list[Offsets]]:
    """Join EDUs with spaces, for treebanks without the original text; return the text and the offsets of EDUs.

    As in `join_sentences`, no space follows a Chinese or Japanese character.
    """
    starts = accumulate((len(text) + len(space_after(text)) for text in texts), initial=0)
    return join_sentences(texts), [(start, start + len(text)) for start, text in zip(starts, texts)]


def in_language(document: TreebankDocument, code: str) -> TreebankDocument:
    """Add sentences by the rules of language `code` if there are none; English is split later, by `sentence_starts`."""
    language = language_of(code)
    if language.is_english or document.sentences:
        return document
    if language.primary in UNSPACED_LANGUAGES:  # treebanks separate words by spaces, plain text does not
        text, edus = join_edus([language.detokenize(edu.split()) for edu in document.edu_texts])
        document = replace(document, text=text, edus=edus, paragraphs=[])  # paragraphs are offsets of the old text
    return replace(document, sentences=sentence_offsets(document.text, document.paragraphs or None, code))
