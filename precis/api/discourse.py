"""The discourse structure of a text: its best RST tree, and the distribution over relations between its EDUs."""

from functools import lru_cache

from pytorch_lightning import LightningModule
from torch import Tensor

from datamodules.corpora.texts import Texts
from datamodules.discourse.distributions import Rows
from datamodules.discourse.parses import DiscourseParse
from datamodules.discourse.trees import Tree
from datamodules.documents import UserError
from datamodules.text.language import length_words
from datamodules.text.lines import counted
from precis.config.parsers import load_parser
from precis.discourse.parse import LARGEST_HEAT_MAP, parse_document
from precis.discourse.tree_drawing import draw_svg, draw_text
from precis.files.texts import documents_of

_load_parser = lru_cache(maxsize=2)(load_parser)


class Discourse:
    """A parsed text. In a notebook it shows its tree.

    Attributes:
        edus: texts of the E elementary discourse units.
        relations: names of the R relations.
        tree: the best tree.
        parse: the parser's answer: offsets of the EDUs, the LDD of nearby EDUs (its band), their importance (gamma).
    """

    def __init__(self, parse: DiscourseParse, text: str) -> None:
        self.parse = parse
        self.edus: list[str] = [text[start:end] for start, end in parse.edus.tolist()]
        self.relations: tuple[str, ...] = parse.relations
        self.tree: Tree = parse.best_tree()

    @property
    def ldd(self) -> Tensor:
        """The labelled discourse distribution p(EDU i is the nucleus of EDU j under relation l), [E, E, R].

        Raises:
            ValueError: if the parse lacks pairs: it stores those of EDUs up to a maximum distance, for long texts.
        """
        return self.parse.dense()

    def show(self, width: int = 100) -> None:
        """Print the tree as an outline, with lines of at most `width` characters."""
        print(draw_text(self.tree, self.edus, width), end="")

    def __str__(self) -> str:
        return draw_text(self.tree, self.edus)

    def __repr__(self) -> str:
        return f"<precis.Discourse: {counted(len(self.edus), 'EDU')}>"

    def _repr_svg_(self) -> str:
        return draw_svg(self.tree, self.edus)


def parse(text: str, parser: str | LightningModule = "default", rows: Rows = "side", language: str = "en") -> Discourse:
    """Parse the discourse of a text, as `precis parse --show` does.

    Args:
        text: the document; blank lines separate its paragraphs.
        parser: a name of `precis parse --parser`, the folder of a trained parser, or a parser.
        rows: which EDUs have probability as a nucleus: all on its `side`, or only those which are a `nucleus`.
        language: ISO code of the language, which divides the text into sentences.

    Raises:
        UserError: if the text is empty, or there is no such parser.
    """
    if not isinstance(text, str) or not text.strip():
        raise UserError("there is no text to parse; give a string with words")
    (document,) = documents_of(Texts([("text", text)]), language)
    if isinstance(parser, str):
        # band, EDUs to each side: all, at most the number of words; a power of two, so that texts share a cached parser
        num_words = len(length_words(text))
        band = min(LARGEST_HEAT_MAP, max(64, 1 << (num_words - 1).bit_length()))  # 64, so that short texts share one
        parser = _load_parser(parser, rows, band)
    if not hasattr(parser, "predict_step"):  # see `datamodules.parsing.Parser`
        raise UserError(f"parser is of type {type(parser).__name__}; give a name, a folder or a parser")
    _, parsed = parse_document(document, parser)  # the first is the request, with the same text
    return Discourse(parsed, document.text)
