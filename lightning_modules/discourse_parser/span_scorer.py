"""Neural scorer of discourse trees: scores of spans, and classes (nuclearity, relation) of nodes, from EDU vectors."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from lightning_modules.discourse_parser.chart import Potentials
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional

EDU_LAYOUT, SPAN_LAYOUT = 8, 18  # numbers of features
_SPANS = {"cpu": 2048}  # spans that are scored at once, so that they fit into the cache of a core; 65,536 elsewhere


class Layout(NamedTuple):
    """Sentence, paragraph and length of the EDUs of B documents; entries after a document's last EDU are ignored."""

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
        """Return whether each EDU is the first, and the last, of its `unit` (index of sentence, paragraph), [B, E]."""
        changes = unit[:, 1:] != unit[:, :-1]                                        # [B, E - 1]
        true = torch.ones_like(unit[:, :1], dtype=torch.bool)                        # [B, 1]
        is_first = torch.cat([true, changes], 1)
        is_last = torch.cat([changes, true], 1)
        ends_document = torch.arange(unit.shape[1], device=unit.device) == self.sizes.unsqueeze(1) - 1
        return is_first, is_last | ends_document  # since padding may have the same `unit` as the last EDU

    def of_edus(self) -> Tensor:
        """Return features [B, E, 8]: first and last EDU of sentence, paragraph (4); length; position (2); text size."""
        position = torch.arange(self.sentence.shape[1], device=self.sentence.device).expand_as(self.sentence)
        sizes = self.sizes.unsqueeze(1)                                              # [B, 1]
        relative = (position + 0.5) / sizes  # middle of the EDU, as a fraction of the document
        flags = [flag.float() for unit in (self.sentence, self.paragraph) for flag in self.ends(unit)]
        log_sizes = sizes.log().expand_as(relative)  # the same for all EDUs of a text
        # divisors bring the logarithms to about 1: that of an EDU of 20 tokens, and of a text of 150 EDUs
        numbers = [self.tokens.float().log1p() / 3, relative, (position == 0).float(), log_sizes / 5]
        return torch.stack([*flags, *numbers], -1)

    def of_spans(self, document: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return features of spans of EDUs, [N, 18]; document, first and last EDU of each span are [N].

        There are 7 for sentences and 7 for paragraphs: whether a span begins where one begins, ends where one ends,
        does both, crosses a boundary, crosses one but begins (ends) inside a unit, number of boundaries; and 4 for
        position and length. Logarithms are divided by constants that bring usual values to about 1.
        """
        features = []
        for unit in (self.sentence, self.paragraph):
            is_first, is_last = self.ends(unit)  # flags of EDUs, [B, E] each
            begins, ends = is_first[document, start], is_last[document, end]         # [N] each
            boundaries = unit[document, end] - unit[document, start]  # inside the span
            crosses = boundaries > 0
            features += [begins, ends, begins & ends, crosses, crosses & ~begins, crosses & ~ends]
            features += [boundaries.float().log1p() / 2]
        length, size = (end - start + 1).float(), self.sizes[document]               # in EDUs
        features += [start == 0, end == size - 1, length.log() / 4, length / size]
        return torch.stack([feature.float() for feature in features], -1)


class Units(NamedTuple):
    """Leaves of G charts, up to U each: the EDUs of a document, the EDUs of a chunk of a document, or its chunks."""

    document: Tensor  # index of the document of each chart, [G]
    start: Tensor  # first EDU of each unit, [G, U]
    end: Tensor  # last EDU of each unit, [G, U]
    sizes: Tensor  # number of units of each chart, [G]

    @classmethod
    def edus(cls, layout: Layout) -> "Units":
        """Return the leaves of charts over whole documents: one chart for each document, with its EDUs as units."""
        edus = torch.arange(layout.sentence.shape[1], device=layout.sentence.device).expand_as(layout.sentence)
        return cls(torch.arange(len(edus), device=edus.device), edus, edus, layout.sizes)


class EduContext(nn.Module):
    """Bidirectional LSTM of width H = `hidden_size` over a document's EDUs, with layout features and a residual."""

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
    """Linear layer over spans: a sum of projections of first and last EDU, EDUs just outside, mean, and layout."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.edus = nn.Linear(input_size, 5 * hidden_size)
        self.layout = nn.Linear(SPAN_LAYOUT, hidden_size)

    def table(self, states: Tensor, layout: Layout) -> Tensor:
        """Return a table of terms that `forward` adds up to vectors of spans, [B (3 E + 1), width]; states: [B, E, H].

        Its rows for each document: a term for each EDU as the first of a span, then for each as the last, [E] each, and
        E + 1 cumulative sums of projected EDUs, for means.
        """
        # 0 at padding, which follows the last EDU as a neighbor; float32: means are differences of cumulative sums
        projected = self.edus(states).float() * layout.mask.unsqueeze(-1)
        first, last, before, following, mean = projected.chunk(5, -1)                # [B, E, hidden_size] each
        zero = torch.zeros_like(before[:, :1])                                       # [B, 1, hidden_size]
        first = first + torch.cat([zero, before[:, :-1]], 1) + self.layout.bias  # with the EDU before the span
        last = last + torch.cat([following[:, 1:], zero], 1)  # with the EDU after the span
        return torch.cat([first, last, zero, mean.cumsum(1)], 1).flatten(0, 1)

    def forward(self, table: Tensor, layout: Layout, document: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Return vectors of N spans, [N, hidden_size], from a `table`; `document`, `start` and `end` (EDUs) are [N]."""
        size = layout.sentence.shape[1]                                              # E
        # a document has E rows for first EDUs, E for last EDUs, E + 1 for cumulative sums; a span adds the rows of its
        # first and last EDU (each with its neighbor outside), and of the sums up to its last and before its first EDU
        rows = torch.stack([start, size + end, 2 * size + end + 1, 2 * size + start], 1)  # [N, 4]
        rows = rows + ((3 * size + 1) * document).unsqueeze(1)
        share = 1 / (end - start + 1).float()  # the difference of the two sums, times `share`, is the mean
        weights = torch.stack([torch.ones_like(share), torch.ones_like(share), share, -share], 1)
        # the weighted sum of four rows takes a quarter of the time of indexing and adding them
        summed = embedding_bag(rows, table, mode="sum", per_sample_weights=weights)
        return summed.addmm_(layout.of_spans(document, start, end), self.layout.weight.T)


class DiscourseScorer(nn.Module):
    """Scores of spans for a chart, and logits of the `classes` (nuclearity and relation) of nodes of discourse trees.

    `fit_size` is the width D of vectors u and v: u . v scores how two parts of a span fit; 0 for span scores only.
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
        """Return a feed-forward network from span vectors to scores; it begins with the ReLU of the span layer."""
        layers = [nn.ReLU(True), Dropout(dropout), nn.Linear(hidden_size, hidden_size), nn.ReLU(True)]  # True: in place
        return nn.Sequential(*layers, nn.Linear(hidden_size, outputs))

    def tables(self, vectors: Tensor, layout: Layout) -> list[Tensor]:
        """Return the tables of the layers `spans`, `node`, `left` and `right`, from EDU vectors [B, E, input_size]."""
        states = self.context(vectors, layout)                                       # [B, E, H]
        return [layer.table(states, layout) for layer in (self.spans, self.node, self.left, self.right)]

    def potentials(self, tables: list[Tensor], layout: Layout, units: Units) -> Potentials:
        """Return scores [G, U, U] and u, v [G, U, U, D] of spans of G charts of U units, from the `tables` of EDUs."""
        charts, size = units.start.shape                                             # G, U
        mask = torch.arange(size, device=units.start.device) < units.sizes.unsqueeze(1)  # [G, U]
        is_span = mask.new_ones(size, size).triu() & mask.unsqueeze(1)  # first <= last, no padding, [G, U, U]
        chart, first, last = spans = is_span.nonzero(as_tuple=True)                  # in units, [N] each
        in_edus = units.document[chart], units.start[chart, first], units.end[chart, last]  # [N] each
        # on a CPU, blocks that fit into the cache of a core take half the time of a single pass
        block_size = _SPANS.get(chart.device.type, 65_536)  # 2048 spans on a CPU
        blocks = zip(*(indices.split(block_size) for indices in in_edus))
        scored = [self.span_score(self.spans(tables[0], layout, *block)).float() for block in blocks]
        scores, u, v = torch.cat(scored).split([1, self.fit_size, self.fit_size], -1)
        span_scores = scores.new_zeros(charts, size, size).index_put(spans, scores.squeeze(-1))
        if not self.fit_size:
            return Potentials(span_scores)
        left = scores.new_zeros(charts, size, size, self.fit_size)
        right = torch.zeros_like(left)
        # by split (see `Potentials`): a left part ends at the split, a right part begins after it, where a part that
        # begins at 0 goes to the last row, which no split has; the scale keeps u . v in the range of s at first
        left[chart, last, first] = u * self.fit_size**-0.5
        right[chart, first - 1, last] = v
        return Potentials(span_scores, (left, right))

    def class_logits(
        self, tables: list[Tensor], layout: Layout, document: Tensor, start: Tensor, split: Tensor, end: Tensor
    ) -> Tensor:
        """Return logits of C classes, [N, C], of N nodes over EDUs start..end, split after `split`; indices are [N]."""
        hidden = self.node(tables[1], layout, document, start, end)
        hidden = hidden + self.left(tables[2], layout, document, start, split)
        return self.class_score(hidden + self.right(tables[3], layout, document, split + 1, end)).float()

    def class_logits_of_chart(
        self, tables: list[Tensor], layout: Layout, nodes: tuple[Tensor, Tensor, Tensor, Tensor], batch_size: int
    ) -> Iterator[Tensor]:
        """Yield the `class_logits` of N nodes (document, start, split, end; [N] each) by `batch_size` nodes, [n, C].

        Unlike `class_logits`, this computes the vector of each distinct span or part once, as many nodes share them.
        """
        document, start, split, end = nodes
        size, num_spans = layout.sentence.shape[1], 0                                # E
        vectors, rows = [], []  # vectors of spans, left, right parts, [distinct, H], and their rows for each node, [N]
        parts = (self.node, start, end), (self.left, start, split), (self.right, split + 1, end)
        for table, (layer, first, last) in zip(tables[1:], parts):
            span_ids = (document * size + first) * size + last  # one number for each span, decoded below
            distinct, inverse = span_ids.unique(return_inverse=True)
            vectors.append(layer(table, layout, distinct // size**2, distinct // size % size, distinct % size))
            rows.append(inverse + num_spans)
            num_spans += len(distinct)
        table = torch.cat(vectors)                                                   # [distinct in all, H]
        for batch in torch.stack(rows, 1).split(batch_size):                         # [n, 3]
            # the sum of three rows by `embedding_bag` takes a tenth of the time of indexing and adding them
            yield self.class_score(embedding_bag(batch, table, mode="sum")).float()


def node_scores(potentials: Potentials, chart: Tensor, start: Tensor, split: Tensor, end: Tensor) -> Tensor:
    """Return scores s(i, j) + u(i, k) . v(k + 1, j) of N nodes i..j split after k (start, end, split), [N] each."""
    scores = potentials.spans[chart, start, end]
    if potentials.fits is None:  # only spans are scored
        return scores
    u, v = potentials.fits
    return scores + (u[chart, split, start] * v[chart, split, end]).sum(-1)


def pool_edus(tokens: Tensor, edus: Tensor, count: int) -> Tensor:
    """Concatenate the first, last and mean token vector of each of E EDUs: [T, D] -> [E, 3 D]; zeros without tokens.

    `edus` has the index of each token's EDU, non-decreasing but for -1 (no EDU), [T]; `count` is E.
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
