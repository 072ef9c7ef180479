"""Neural scorer of discourse trees: scores of spans, and classes (nuclearity, relation) of nodes, from EDU vectors."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from lightning_modules.discourse_parser.chart import Chart, Potentials
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

EDU_LAYOUT, SPAN_LAYOUT = 8, 18  # numbers of features
_SPANS = {"cpu": 2048}  # spans that are scored at once, so that they fit into the cache of a core; 65,536 elsewhere


class Layout(NamedTuple):
    """Sentence, paragraph and length of each EDU; entries after the last EDU of a document are ignored."""

    sentence: Tensor  # index of each EDU's sentence, non-decreasing, [B, E]
    paragraph: Tensor  # index of each EDU's paragraph, non-decreasing, [B, E]
    tokens: Tensor  # number of tokens of each EDU, [B, E]
    lengths: Tensor  # number of EDUs of each document, at least 1, on the CPU, [B]

    @property
    def sizes(self) -> Tensor:
        """Number of EDUs of each document, on the device of the other tensors, [B]."""
        return self.lengths.to(self.sentence.device, non_blocking=True)

    @property
    def mask(self) -> Tensor:
        """True at EDUs, [B, E]."""
        return torch.arange(self.sentence.shape[1], device=self.sentence.device) < self.sizes.unsqueeze(1)

    def ends(self, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether each EDU is the first, and the last, of its `unit` (sentence or paragraph), [B, E] each."""
        changes = unit[:, 1:] != unit[:, :-1]                                        # [B, E - 1]
        edge = torch.ones_like(unit[:, :1], dtype=torch.bool)                        # [B, 1]
        is_first = torch.cat([edge, changes], 1)
        is_last = torch.cat([changes, edge], 1)
        ends_document = torch.arange(unit.shape[1], device=unit.device) == self.sizes.unsqueeze(1) - 1
        return is_first, is_last | ends_document  # the unit of padding may equal that of the last EDU

    def of_edus(self) -> Tensor:
        """Return features of EDUs, [B, E, 8]: ends of sentence and paragraph (4), length, position (2), text size."""
        position = torch.arange(self.sentence.shape[1], device=self.sentence.device).expand_as(self.sentence)
        sizes = self.sizes.unsqueeze(1)                                              # [B, 1]
        relative = (position + 0.5) / sizes  # middle of the EDU, as a fraction of the document
        flags = [flag.float() for unit in (self.sentence, self.paragraph) for flag in self.ends(unit)]
        log_sizes = sizes.log().expand_as(relative)  # the same for all EDUs of a text
        # logarithms are about 1 for 20 tokens, and for a text of 150 EDUs
        numbers = [self.tokens.float().log1p() / 3, relative, (position == 0).float(), log_sizes / 5]
        return torch.stack([*flags, *numbers], -1)

    def of_spans(self, document: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return features of spans of EDUs, [N, 18]; document, first and last EDU of each span are [N].

        There are 7 for sentences and 7 for paragraphs: whether a span begins with one, ends with one, does both,
        crosses a boundary, crosses it but begins (ends) inside a unit, number of boundaries; and 4 for position and
        length. Logarithms are divided by constants that bring usual values to about 1.
        """
        features = []
        for unit in (self.sentence, self.paragraph):
            first, last = self.ends(unit)  # flags of EDUs, [B, E] each
            begins, ends = first[document, start], last[document, end]
            boundaries = unit[document, end] - unit[document, start]  # inside the span
            crosses = boundaries > 0
            features += [begins, ends, begins & ends, crosses, crosses & ~begins, crosses & ~ends]
            features += [boundaries.float().log1p() / 2]
        length, size = (end - start + 1).float(), self.sizes[document]               # in EDUs
        features += [start == 0, end == size - 1, length.log() / 4, length / size]
        return torch.stack([feature.float() for feature in features], -1)


class Units(NamedTuple):
    """Leaves of charts: the EDUs of a document, or chunks of EDUs."""

    document: Tensor  # index of the document of each chart in `Layout`, [G]
    start: Tensor  # first EDU of each unit, [G, U]
    end: Tensor  # last EDU of each unit, [G, U]
    sizes: Tensor  # number of units of each chart, [G]

    @classmethod
    def edus(cls, layout: Layout) -> "Units":
        """Return the units of one chart for each document, over its EDUs."""
        edus = torch.arange(layout.sentence.shape[1], device=layout.sentence.device).expand_as(layout.sentence)
        return cls(torch.arange(len(edus), device=edus.device), edus, edus, layout.sizes)


class EduContext(nn.Module):
    """Bidirectional LSTM of width H over the EDUs of a document, with layout features and a residual connection."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(input_size, hidden_size)
        self.normalize = nn.LayerNorm(hidden_size)
        self.layout = nn.Linear(EDU_LAYOUT, hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size // 2, batch_first=True, bidirectional=True)
        self.dropout = Dropout(dropout)

    def forward(self, vectors: Tensor, layout: Layout) -> Tensor:
        """Return contextual EDU vectors: [B, E, input_size] -> [B, E, H]."""
        x = self.normalize(self.project(self.dropout(vectors))) + self.layout(layout.of_edus())  # [B, E, H]
        x = self.dropout(x.relu())
        return self.dropout(bidirectional(self.lstm, x, layout.lengths).states + x)


class _SpanLayer(nn.Module):
    """Linear layer over spans: a sum of projections of the boundary EDUs, EDUs just outside, mean and layout."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.edus = nn.Linear(input_size, 5 * hidden_size)
        self.layout = nn.Linear(SPAN_LAYOUT, hidden_size)

    def table(self, states: Tensor, layout: Layout) -> Tensor:
        """Return a table of terms from which `sums` computes spans, [B (3 E + 1), hidden_size]; states are [B, E, H].

        Its rows for each document: E terms of first EDUs, E terms of last EDUs, and E + 1 cumulative sums of the terms
        of the mean.
        """
        # the mask removes the bias of the layer at padding, which must be zero as the neighbor of the last EDU
        projected = self.edus(states).float() * layout.mask.unsqueeze(-1)  # a mean is a difference of sums: float32
        first, last, before, following, mean = projected.chunk(5, -1)                # [B, E, hidden_size] each
        edge = torch.zeros_like(before[:, :1])
        first = first + torch.cat([edge, before[:, :-1]], 1)  # with the EDU before the span
        last = last + torch.cat([following[:, 1:], edge], 1)  # with the EDU after the span
        return torch.cat([first, last, edge, mean.cumsum(1)], 1).flatten(0, 1)

    def sums(self, table: Tensor, layout: Layout, document: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return vectors of spans, [N, hidden_size], from the `table`; document, first and last EDU are [N]."""
        size = layout.sentence.shape[1]                                              # E
        # a document has E rows for first EDUs, E for last EDUs, and E + 1 for cumulative sums of the terms of the mean:
        # rows of the first and last EDU, each with its neighbor outside, and of sums to the last and before the first
        rows = torch.stack([start, size + end, 2 * size + end + 1, 2 * size + start], 1)  # [N, 4]
        rows = rows + ((3 * size + 1) * document).unsqueeze(1)
        share = 1 / (end - start + 1).float()  # the difference of the two sums, times this, is the mean
        weights = torch.stack([torch.ones_like(share), torch.ones_like(share), share, -share], 1)
        # the weighted sum of four rows takes a quarter of the time of indexing and adding them
        summed = embedding_bag(rows, table, mode="sum", per_sample_weights=weights)
        return summed + self.layout(layout.of_spans(document, start, end))

    def forward(self, states: Tensor, layout: Layout, document: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return vectors of spans, [N, hidden_size]; states are [B, E, H], document, first and last EDU [N]."""
        return self.sums(self.table(states, layout), layout, document, start, end)


class DiscourseScorer(nn.Module):
    """Span scores for a chart, and class logits of nodes.

    `fit_size` is the width D of the vectors u and v that score how two parts fit; 0 for span scores only.
    """

    def __init__(self, input_size: int, hidden_size: int, classes: int, dropout: float = 0.4, fit_size: int = 32):
        super().__init__()
        self.fit_size = fit_size
        self.context = EduContext(input_size, hidden_size, dropout)
        self.spans = _SpanLayer(hidden_size, hidden_size)
        self.node = _SpanLayer(hidden_size, hidden_size)
        self.left = _SpanLayer(hidden_size, hidden_size)
        self.right = _SpanLayer(hidden_size, hidden_size)
        self.span_score = self._head(hidden_size, 1 + 2 * fit_size, dropout)
        self.class_score = self._head(hidden_size, classes, dropout)

    @staticmethod
    def _head(hidden_size: int, outputs: int, dropout: float) -> nn.Module:
        """Return a feed-forward network from span vectors before their ReLU to scores."""
        layers = [nn.ReLU(), Dropout(dropout), nn.Linear(hidden_size, hidden_size), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(hidden_size, outputs))

    def potentials(self, states: Tensor, layout: Layout, units: Units) -> Potentials:
        """Return potentials of G charts of U units: scores [G, U, U], u and v [G, U, U, D]; states are [B, E, H]."""
        charts, size = units.start.shape                                             # G, U
        mask = torch.arange(size, device=states.device) < units.sizes.unsqueeze(1)   # [G, U]
        is_span = mask.new_ones(size, size).triu() & mask.unsqueeze(1)  # first <= last, no padding, [G, U, U]
        chart, first, last = spans = is_span.nonzero(as_tuple=True)                  # in units, [N] each
        in_edus = units.document[chart], units.start[chart, first], units.end[chart, last]
        # on a CPU, blocks that fit into the cache of a core take half the time of a single pass
        block_size = _SPANS.get(states.device.type, 65_536)  # larger ones on a GPU
        blocks = zip(*(column.split(block_size) for column in in_edus))
        table = self.spans.table(states, layout)  # terms of EDUs, which `sums` adds up to vectors of spans
        scored = [self.span_score(self.spans.sums(table, layout, *block)).float() for block in blocks]
        scores, u, v = torch.cat(scored).split([1, self.fit_size, self.fit_size], -1)
        span_scores = scores.new_zeros(charts, size, size).index_put(spans, scores.squeeze(-1))
        # u of left parts, v of right parts; at initialization, the scale keeps u . v in the range of s
        fits = Chart.of(spans, u * self.fit_size**-0.5, v, charts, size) if self.fit_size else None
        return Potentials(span_scores, fits)

    def class_logits(
        self, states: Tensor, layout: Layout, document: Tensor, start: Tensor, split: Tensor, end: Tensor
    ) -> Tensor:
        """Return class logits of nodes over EDUs start..end, split after `split`, each [N] -> [N, C]."""
        hidden = self.node(states, layout, document, start, end)
        hidden = hidden + self.left(states, layout, document, start, split)
        return self.class_score(hidden + self.right(states, layout, document, split + 1, end)).float()

    def class_logits_of_chart(
        self, states: Tensor, layout: Layout, nodes: tuple[Tensor, Tensor, Tensor, Tensor], batch_size: int
    ) -> Iterator[Tensor]:
        """Yield the `class_logits` of N nodes (document, start, split, end, [N] each), [n, C] with n <= `batch_size`.

        Unlike `class_logits`, it computes the vector of each span and part once, because many nodes share them.
        """
        document, start, split, end = nodes
        size, num_spans = states.shape[1], 0
        vectors, rows = [], []  # of the spans, left and right parts, [distinct, H], and their rows for each node, [N]
        for layer, first, last in ((self.node, start, end), (self.left, start, split), (self.right, split + 1, end)):
            span_ids = (document * size + first) * size + last  # one number for each span, decoded below
            distinct, inverse = span_ids.unique(return_inverse=True)
            vectors.append(layer(states, layout, distinct // size**2, distinct // size % size, distinct % size))
            rows.append(inverse + num_spans)
            num_spans += len(distinct)
        table = torch.cat(vectors)                                                   # [spans of the three layers, H]
        for batch in torch.stack(rows, 1).split(batch_size):                         # [n, 3]
            # the sum of three rows by `embedding_bag` takes a tenth of the time of indexing and adding them
            yield self.class_score(embedding_bag(batch, table, mode="sum")).float()


def node_scores(potentials: Potentials, chart: Tensor, start: Tensor, split: Tensor, end: Tensor) -> Tensor:
    """Return the scores s(i, j) + u(i, k) . v(k + 1, j) of N nodes, i..j of a `chart` split after k, [N] each."""
    scores = potentials.spans[chart, start, end]
    if potentials.fits is None:  # only spans are scored
        return scores
    size = potentials.spans.shape[1]                                                 # E
    u, v = potentials.fits  # u by start and width, v by end and E - 1 - width
    left, right = split - start, end - (split + 1)  # widths of the two parts, [N]
    return scores + (u[chart, start, left] * v[chart, end, size - 1 - right]).sum(-1)


def pool_edus(tokens: Tensor, edus: Tensor, count: int) -> Tensor:
    """Concatenate the first, last and mean token vector of each of E EDUs: [T, D] -> [E, 3 D]; zeros without tokens.

    `edus` has the EDU of each token, -1 for none, otherwise non-decreasing, [T]; `count` is E.
    """
    tokens, edus = tokens[edus >= 0], edus[edus >= 0]  # the tokens of an EDU are now consecutive
    counts = torch.zeros(count, dtype=torch.long, device=edus.device).index_add_(0, edus, torch.ones_like(edus))  # [E]
    ends = counts.cumsum(0)  # index after the last token of each EDU
    padded = torch.cat([tokens, tokens.new_zeros(1, tokens.shape[1])])               # zeros, for empty EDUs
    empty = counts == 0
    first = torch.where(empty, len(tokens), ends - counts)
    last = torch.where(empty, len(tokens), ends - 1)
    sums = tokens.new_zeros(count, tokens.shape[1]).index_add_(0, edus, tokens)
    return torch.cat([padded[first], padded[last], sums / counts.clamp(min=1).unsqueeze(1)], 1)
