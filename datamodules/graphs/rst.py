"""Paragraphs that rhetorical structure binds together: the discourse distribution of EDUs, lifted to paragraphs."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.documents import Document
from datamodules.graphs.graph import ParagraphGraph
from datamodules.graphs.paragraphs import Paragraphs
from datamodules.parsing import Parser, key_of, parse_missing


class RST(ParagraphGraph):
    """G[i][j] = mean over EDUs b of paragraph i and a of paragraph j of  sum_l p(a is the nucleus of b under l).

    So a paragraph looks at those that are nuclei to it, and more at those that a narrow relation binds to it. In more
    detail:

    - The whole document is parsed, its parts one behind the other, so that parses are those of `precis parse`.
    - An EDU belongs to the paragraph that its first character is in; EDUs of paragraphs that are not kept do not count.
    - The mean is over pairs of EDUs that are at most the parser's `band` apart; paragraphs without such a pair have
      weight 0.
    - The relations `without` do not count. As of two EDUs one at least is the nucleus, the sum over all relations is
      large for any two paragraphs, and largest (1, both ways) where all that can be said is that both stand there:
      relation `joint`. Leaving that one out makes the sum a measure of how much else there is.

    Args:
        parser: whose parses.
        parses: folder of parses; what it lacks is parsed in `prepare`.
        without: relations that do not count, of those that the parser has.
    """

    name, symmetric = "rst", False

    def __init__(self, parser: Parser, parses: Path, without: Sequence[str] = ("joint",)) -> None:
        self.parser, self.parses, self.without = parser, Path(parses), tuple(without)
        self._cache: ParseCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For another process: weights of a parser and open files stay here."""
        names = ("fingerprint", "rows", "band")
        light = SimpleNamespace(**{name: getattr(self.parser, name) for name in names})
        return self.__dict__ | {"parser": light, "_cache": None}

    @property
    def cache(self) -> ParseCache:
        """The folder of parses."""
        if self._cache is None:
            self._cache = ParseCache(self.parses)
        return self._cache

    def settings(self) -> dict[str, Any]:
        return {
            "parser": [self.parser.fingerprint, self.parser.rows, self.parser.band],
            "without": sorted(self.without),
        }

    def prepare(self, documents: Sequence[Document]) -> None:
        """Parses the documents that the folder lacks."""
        parse_missing(documents, self.cache, self.parser)

    def weights(self, paragraphs: Paragraphs) -> NDArray:
        """The lifted distribution.

        Raises:
            MissingParse: if there is no parse of the document.
        """
        request = ParseRequest.of(paragraphs.document)
        if request.empty:
            return np.zeros((len(paragraphs), len(paragraphs)))
        parse = self.cache.get(key_of(request, self.parser), paragraphs.id)
        return lifted(parse, owners(parse, request, paragraphs), len(paragraphs), self.without)


def owners(parse: DiscourseParse, request: ParseRequest, paragraphs: Paragraphs) -> NDArray:
    """The paragraph that each EDU begins in, -1 where that is not kept, [E]."""
    starts = np.array([start for start, _ in request.sentences])
    of_sentence = np.full(len(starts), -1)
    for place, (start, end) in enumerate(paragraphs.spans):
        of_sentence[start:end] = place
    # the last sentence that begins at the EDU's first character or before
    return of_sentence[np.searchsorted(starts, parse.edus[:, 0].numpy(), side="right") - 1]


def lifted(parse: DiscourseParse, owner: NDArray, size: int, without: Sequence[str] = ()) -> NDArray:
    """Means of a parse's LDD over the pairs of EDUs of two paragraphs.

    Args:
        parse: of the document, E EDUs.
        owner: paragraph of each EDU, -1 for none, [E].
        size: number of paragraphs L.
        without: relations that do not count.

    Returns:
        [L, L]; entry [i, j] is about EDUs of j as nuclei of EDUs of i.
    """
    counted = [name not in without for name in parse.relations]
    half = parse.half_width
    band = parse.band(half).numpy()[:, :, counted].sum(-1)  # [E, 2b + 1]
    nucleus = np.repeat(np.arange(parse.size)[:, None], 2 * half + 1, 1)
    other = nucleus + np.arange(-half, half + 1)
    real = (other >= 0) & (other < parse.size) & (other != nucleus)
    nucleus, other, values = nucleus[real], other[real], band[real]
    kept = (owner[nucleus] >= 0) & (owner[other] >= 0)
    cell = (owner[other] * size + owner[nucleus])[kept]
    sums = np.bincount(cell, values[kept], size * size)
    pairs = np.bincount(cell, minlength=size * size)
    return (sums / np.maximum(pairs, 1)).clip(0, 1).reshape(size, size)  # bytes of several relations may exceed 1
