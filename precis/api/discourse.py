"""The discourse structure of a text: its best RST tree, and the labeled discourse distribution (LDD) over its EDUs."""

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
from precis.config.parsers import PARSERS, load_parser
from precis.discourse.parse import LARGEST_HEAT_MAP, parse_document
from precis.discourse.tree_drawing import draw_svg, draw_text
from precis.files.texts import documents_of

_load_parser = lru_cache(maxsize=2)(load_parser)


class Discourse:
    """The discourse of a text by Rhetorical Structure Theory (RST). In a notebook it is displayed as its tree.

    Attributes:
        edus: texts of the E elementary discourse units (EDUs).
        relations: names of the R relations.
        tree: the best RST tree.
        parse: offsets and importance of EDUs, and the probability of each relation for each pair of nearby EDUs.
    """

    def __init__(self, parse: DiscourseParse, text: str) -> None:
        self.parse = parse
        self.edus: list[str] = [text[start:end] for start, end in parse.edus.tolist()]
        self.relations: tuple[str, ...] = parse.relations
        self.tree: Tree = parse.best_tree()

    @property
    def ldd(self) -> Tensor:
        """The labeled discourse distribution (LDD) p(EDU i is the nucleus of EDU j under relation l), [E, E, R].

        Raises:
            ValueError: if the text is so long that the parse, which stores pairs of nearby EDUs, lacks distant pairs.
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
        parser: name of a parser as in `precis parse --parser`, folder of a trained parser, or the parser itself.
        rows: which EDUs can be the nucleus of an EDU, see `tree_ldd`: all on the nucleus side of their lowest common
            ancestor (`side`), or only those that are also a nucleus of their own parent (`nucleus`).
        language: ISO code of the language, by whose rules the text is divided into sentences.

    Raises:
        UserError: if the text is empty, or there is no such parser.
    """
    if not isinstance(text, str) or not text.strip():
        raise UserError("there is no text to parse; give a string with words")
    (document,) = documents_of(Texts([("text", text)]), language)  # "text": the id
    if isinstance(parser, str):
        num_words = len(length_words(text))  # at least the number of EDUs
        # maximum distance of stored pairs of EDUs, a power of two: texts of similar length share a cached parser
        band = min(LARGEST_HEAT_MAP, max(64, 1 << (num_words - 1).bit_length()))  # at most what heat maps can show
        load = _load_parser if parser in PARSERS else load_parser  # no cache for a folder, which may have changed
        parser = load(parser, rows, band)
    if not hasattr(parser, "predict_step"):  # which every parser has
        raise UserError(f"parser is of type {type(parser).__name__}; give a name, a folder or a parser")
    _, parsed = parse_document(document, parser)  # (parser's input, parse)
    return Discourse(parsed, document.text)
