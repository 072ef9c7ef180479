"""Graph of rhetorical structure: the labeled discourse distribution of EDUs, averaged over pairs of paragraphs."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.documents import Document
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.text.language import ENGLISH_PARSER, warn_if_not_english

if TYPE_CHECKING:  # imported when a document is parsed: commands list the names of the graphs without torch
    from datamodules.discourse.cache import ParseCache
    from datamodules.discourse.parses import DiscourseParse, ParseRequest
    from datamodules.parsing import Parser


class RST(ParagraphGraph):
    """G[i][j] = mean over EDUs b of paragraph i and a of paragraph j of sum_l p(a is nucleus of b under relation l).

    A paragraph thus attends to its nuclei. A parser gives p, for pairs of elementary discourse units (EDUs).

    - The whole document is parsed at once, as by `precis parse`, whose parses can be used.
    - An EDU belongs to the paragraph of its first character; EDUs outside the selected paragraphs are ignored.
    - The mean is over pairs of EDUs at most `parser.band` EDUs apart; paragraphs without such a pair have weight 0.
    - The relations in `without` are ignored. Since at least one of two EDUs is the nucleus, the sum over all relations
      is large for any two paragraphs. It is largest for the least specific relation, `joint`, in which each EDU is the
      nucleus of the other (1 in both directions). Without `joint`, the sum measures how much other structure there is.

    Args:
        parser: discourse parser.
        parses: folder of parses; missing documents are parsed in `prepare`.
        without: relations of the parser to ignore.
    """

    name = "rst"
    symmetric = False

    def __init__(self, parser: "Parser", parses: Path, without: Sequence[str] = ("joint",)) -> None:
        self.parser = parser
        self.parses = Path(parses)
        self.without = tuple(without)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for worker processes, without the weights of the parser."""
        from datamodules.parsing import without_weights  # imports torch

        return self.__dict__ | {"parser": without_weights(self.parser)}

    @cached_property
    def cache(self) -> "ParseCache":
        """Cache of parses, opened on first use."""
        from datamodules.discourse.cache import ParseCache  # imports torch

        return ParseCache(self.parses)

    def settings(self) -> dict[str, Any]:
        parser = [self.parser.fingerprint, self.parser.rows, self.parser.band]
        return {"parser": parser, "without": sorted(self.without)}

    def prepare(self, documents: Sequence[Document]) -> None:
        """Parse the documents whose parse is missing in the folder."""
        from datamodules.parsing import parse_missing  # imports torch

        if getattr(self.parser, "is_english", False):  # a parser of the user may lack the attribute
            warn_if_not_english(ENGLISH_PARSER, language=self.language)
        parse_missing(documents, self.cache, self.parser)

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        """Return mean probabilities of discourse relations, see `paragraph_means`; zeros for a document without text.

        Raises:
            MissingParse: if `prepare` has not parsed the document.
        """
        from datamodules.discourse.parses import ParseRequest  # imports torch, unlike other graphs; so does the next
        from datamodules.parsing import key_of

        request = ParseRequest.of(paragraphs.document)
        if request.empty:
            return np.zeros((len(paragraphs), len(paragraphs)))
        parse = self.cache.get(key_of(request, self.parser), paragraphs.id)  # the id is for messages
        return paragraph_means(parse, owners(parse, request, paragraphs), len(paragraphs), self.without)


def owners(parse: "DiscourseParse", request: "ParseRequest", paragraphs: Paragraphs) -> NDArray:
    """Return the index of the selected paragraph in which each of E EDUs begins, -1 if in no selected one, [E]."""
    sentence_starts = np.array([start for start, _ in request.sentences])  # first characters
    paragraph_of_sentence = np.full(len(sentence_starts), -1)
    for paragraph, (start, end) in enumerate(paragraphs.spans):  # ranges of `Document.sentences`
        paragraph_of_sentence[start:end] = paragraph
    # the last sentence that begins at or before the EDU: it has the EDU's first character, which is no whitespace
    sentence_of_edu = np.searchsorted(sentence_starts, parse.edus[:, 0].numpy(), side="right") - 1
    return paragraph_of_sentence[sentence_of_edu]


def paragraph_means(parse: "DiscourseParse", owner: NDArray, size: int, without: Sequence[str] = ()) -> NDArray:
    """Average the labeled discourse distribution (LDD) of a parse over the pairs of EDUs of each two paragraphs.

    Args:
        owner: index of the paragraph of each EDU, -1 for none, [E], see `owners`; `size` is the number of paragraphs L.
        without: relations that the sum over relations leaves out.

    Returns:
        [L, L]; entry [i, j] is the mean probability that an EDU of paragraph j is the nucleus of an EDU of paragraph i.
    """
    is_summed = [name not in without for name in parse.relations]  # mask of relations
    half = parse.half_width  # b, the maximum distance of two EDUs in the band; d below is -b, ..., b
    band = parse.band(half).numpy()[:, :, is_summed].sum(-1)  # [a, b + d] is p(a is the nucleus of a + d), [E, 2b + 1]
    nucleus = np.repeat(np.arange(parse.size)[:, None], 2 * half + 1, 1)  # EDU a of each entry, [E, 2b + 1]
    satellite = nucleus + np.arange(-half, half + 1)  # EDU a + d of each entry, [E, 2b + 1]
    is_pair = (satellite >= 0) & (satellite < parse.size) & (satellite != nucleus)
    nucleus, satellite, values = nucleus[is_pair], satellite[is_pair], band[is_pair]  # each [pairs]
    in_paragraphs = (owner[nucleus] >= 0) & (owner[satellite] >= 0)
    entry = (owner[satellite] * size + owner[nucleus])[in_paragraphs]  # i L + j in the flattened result
    sums = np.bincount(entry, values[in_paragraphs], size * size)  # sum of the values of each entry, [L L]
    num_pairs = np.bincount(entry, minlength=size * size)  # number of values of each entry, [L L]
    # Sums over relations can exceed 1, because each value is rounded to one byte.
    return (sums / np.maximum(num_pairs, 1)).clip(0, 1).reshape(size, size)
