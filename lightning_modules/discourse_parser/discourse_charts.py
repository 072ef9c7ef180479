"""Best trees and tree distributions of a mixture of scorers, for texts of any length."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from lightning_modules.discourse_parser import ldd
from lightning_modules.discourse_parser.chart import (
    Potentials,
    SplitPosterior,
    WidthMarginals,
    all_marginals,
    best_trees,
    most_probable_splits,
    node_marginals,
    span_marginals,
)
from lightning_modules.discourse_parser.encoder_module import batches_of_similar_size
from lightning_modules.discourse_parser.ldd import LabelClasses
from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units

_CELLS = 400_000  # maximal number of spans, padding included, of charts that are computed together
_MIN_WEIGHT = 1e-12
_MIN_SPAN_PROB = 1e-6  # less probable spans without a scored node are left out of the LDD
_MIN_NODE_PROB = 1e-3  # less probable nodes do not count towards the expected numbers of correct labels
_NODES = {"cpu": 4096}  # nodes whose classes are scored together, so that they fit into CPU caches; 65,536 elsewhere


Decoding = Literal["mbr", "mbr_spans", "cky"]


class MemberChart(NamedTuple):
    """The distribution of one scorer over the trees of one chart."""

    spans: Tensor  # `span_masses` of all nodes, with the class distributions of their spans, [U, U, 2 R]
    nodes: SplitPosterior  # those whose own classes were scored, in units
    labels: Tensor  # P(class | node) of these nodes, [N, C]
    change: Tensor  # P(class | node) - P(class | span) of these nodes, [N, C]


class ScoredNodes(NamedTuple):
    """Probabilities of the spans of charts, and the nodes whose own classes were scored."""

    spans: Tensor  # P(span is a node), [G, U, U]
    nodes: SplitPosterior  # in units
    labels: Tensor  # P(class | node), [N, C]


class ParsedChart(NamedTuple):
    """Best tree and tree distributions of one chart, whose units are EDUs or chunks of EDUs."""

    start: Tensor  # first EDU of each unit, [U]
    end: Tensor  # last EDU of each unit, [U]
    tree: Tensor  # nodes (start, split, end) of the best tree, in units, [U - 1, 3]
    tree_classes: Tensor  # class of each of these nodes, [U - 1]
    members: list[MemberChart]  # distribution of each scorer; empty if only the best tree was requested


def chunk_bounds(sentence: Tensor, paragraph: Tensor, size: int, max_edus: int) -> list[tuple[int, int]]:
    """Return (start, end), end exclusive, of chunks of similar size of a long text, at most `max_edus` >= 2 EDUs each.

    A boundary is the start of a paragraph near the ideal position, else the start of a sentence, else the position
    itself. `sentence` and `paragraph` are the indices of each EDU's, on the host, [E] at least; `size` is E.
    """
    if size <= max_edus:
        return [(0, size)]
    target = max(1, 2 * max_edus // 3)
    count = -(-size // target)
    reach = (max_edus - target) // 2  # a boundary moves at most this far, so that no chunk exceeds max_edus
    sentences, paragraphs = sentence.tolist(), paragraph.tolist()
    bounds = [0]
    for number in range(1, count):
        ideal = number * size // count
        window = range(max(bounds[-1] + 1, ideal - reach), min(size - 1, ideal + reach) + 1)
        # paragraph starts are preferred to sentence starts, and those to the ideal position
        candidates = [ideal]
        for unit in (sentences, paragraphs):
            candidates = [edu for edu in window if unit[edu] != unit[edu - 1]] or candidates
        bounds.append(min(candidates, key=lambda edu: abs(edu - ideal)))
    return list(zip(bounds, [*bounds[1:], size]))


class ChartReader:
    """Computes best trees and tree distributions from a mixture of scorers, with equal weights.

    With `rows: side`, a distribution includes all nodes. The classes of nodes above `min_prob` are scored one by one;
    the remaining nodes, which hold a few per cent of the probability mass, get the mean class distribution of the
    scored nodes over the same span, or that of the span's most probable node if none was scored; spans of a probability
    of 1e-6 or less without a scored node are left out. With `rows: nucleus`, only the nodes above `min_prob` are
    included.

    Args:
        scorers, classes: members of the mixture; nuclearity and relation of each class.
        decoding: `mbr`, the labelled tree with the highest expected sum of correct spans, nuclearities, relations and
            classes (minimum Bayes risk); `mbr_spans`, the tree with the highest expected number of correct spans, each
            node with its most probable class; `cky`, the most probable tree, for a single scorer.
        temperature: divides class logits; below 1, class probabilities are sharper than in training.

    Raises:
        ValueError: if `decoding` is unknown or `cky` with a mixture, or the temperature is not positive.
    """

    def __init__(
        self, scorers: nn.ModuleList, classes: LabelClasses, decoding: Decoding = "mbr", temperature: float = 1.0
    ) -> None:
        if decoding not in get_args(Decoding):
            raise ValueError(f"decoding {decoding!r} is none of {', '.join(get_args(Decoding))}")
        if decoding == "cky" and len(scorers) > 1:
            raise ValueError(f"decoding cky needs one scorer, there are {len(scorers)}; a mixture takes mbr")
        if not temperature > 0:
            raise ValueError(f"a class temperature is above 0, got {temperature}")
        self.scorers: Sequence[DiscourseScorer] = scorers
        self.classes, self.decoding, self.temperature = classes, decoding, temperature

    def compute_charts(
        self,
        vectors: Tensor,
        layout: Layout,
        chunks: list[list[tuple[int, int]]],
        with_nodes: bool = True,
        min_prob: float = 0.0,
    ) -> list[list[ParsedChart]]:
        """Compute the charts of each document: of its `chunk_bounds` and, if there are several, the chart over them.

        The vectors are those of EDUs, [B, E, D]. Without nodes, only best trees are computed. The classes of nodes
        above `min_prob` are scored; 0 scores all, exactly but slowly.
        """
        states = [scorer.context(vectors, layout) for scorer in self.scorers]        # [B, E, H] each
        jobs: list[tuple[int, Tensor, Tensor]] = []
        # one chart for each chunk, whose units are EDUs, and one over several chunks, whose units are the chunks
        for document, bounds in enumerate(chunks):
            for start, end in bounds:
                jobs.append((document, torch.arange(start, end), torch.arange(start, end)))
            if len(bounds) > 1:
                bounds = torch.tensor(bounds)
                jobs.append((document, bounds[:, 0], bounds[:, 1] - 1))
        charts: dict[int, ParsedChart] = {}
        for batch in batches_of_similar_size([len(start) ** 2 for _, start, _ in jobs], _CELLS):
            computed = self._charts(states, layout, [jobs[i] for i in batch], with_nodes, min_prob)
            charts.update(zip(batch, computed))
        documents: list[list[ParsedChart]] = [[] for _ in chunks]
        for number, (document, _, _) in enumerate(jobs):
            documents[document].append(charts[number])
        return documents

    def _charts(
        self, states: list[Tensor], layout: Layout, jobs: list, with_nodes: bool, min_prob: float
    ) -> Iterator[ParsedChart]:
        """Compute charts of similar size, padded to one batch; a job is (document, first EDUs, last EDUs of units)."""
        device = states[0].device
        starts, ends = (nn.utils.rnn.pad_sequence([job[side] for job in jobs], batch_first=True) for side in (1, 2))
        documents = torch.tensor([document for document, _, _ in jobs])
        sizes = torch.tensor([len(job[1]) for job in jobs])
        units = Units(*(tensor.to(device) for tensor in (documents, starts, ends, sizes)))
        weight = 1 / len(self.scorers)
        # under the mixture: P(span is a node) [G, U, U] and P(span is a node of that class) [G, U, U, C]
        spans, classes = 0, 0
        members = []
        for scorer, state in zip(self.scorers, states):
            potentials = scorer.potentials(state, layout, units)
            marginals = all_marginals(potentials, units.sizes)
            of_spans = span_marginals(potentials, marginals)
            spans = spans + weight * of_spans
            if with_nodes or self.decoding == "mbr":
                nodes = node_marginals(potentials, marginals, min_prob if with_nodes else _MIN_NODE_PROB)
                labels = self._labels(scorer, state, layout, units, nodes)
            if self.decoding == "mbr":
                classes = classes + weight * self._class_marginals(nodes, labels, units)
            if with_nodes:
                scored = ScoredNodes(of_spans, nodes, labels)
                members.append(self._distribution(scorer, state, layout, units, potentials, marginals, scored))
        if self.decoding == "mbr":
            trees, tree_classes = self._best_labelled_trees(spans, classes, units.sizes)
        else:
            trees = best_trees(Potentials(spans) if self.decoding == "mbr_spans" else potentials, units.sizes)
            tree_classes = self._most_probable_classes(states, layout, units, trees)
        for number, (job, tree) in enumerate(zip(jobs, trees)):
            of_chart = [_select_chart(member, number, len(job[1])) for member in members]
            yield ParsedChart(start=job[1], end=job[2], tree=tree, tree_classes=tree_classes[number], members=of_chart)

    def _class_marginals(self, nodes: SplitPosterior, labels: Tensor, units: Units) -> Tensor:
        """Return P(span is a node of that class), summed over the span's splits, [G, U, U, C]."""
        charts, size = units.start.shape
        probable = (nodes.probability > _MIN_NODE_PROB).nonzero().squeeze(1)
        chart, first, _, last, probability = (column[probable] for column in nodes)
        marginals = labels.new_zeros(charts, size, size, labels.shape[1])
        return marginals.index_put_((chart, first, last), probability.unsqueeze(1) * labels[probable], accumulate=True)

    def _best_labelled_trees(self, spans: Tensor, classes: Tensor, sizes: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return nodes (start, split, end) [U - 1, 3] and classes [U - 1] of each chart's best tree, on the CPU."""
        # a node (i, j) of class c adds P(i, j) + P(i, j, nuclearity of c) + P(i, j, relation of c) + P(i, j, c)
        gain, best = (classes @ self.classes.agreement().to(classes)).max(-1)        # [G, U, U] each
        trees, best = best_trees(Potentials(spans + gain), sizes), best.cpu()
        return trees, [table[tree[:, 0], tree[:, 2]] for table, tree in zip(best, trees)]

    def _distribution(
        self,
        scorer: DiscourseScorer,
        state: Tensor,
        layout: Layout,
        units: Units,
        potentials: Potentials,
        marginals: list[WidthMarginals],
        scored: ScoredNodes,
    ) -> MemberChart:
        """Return the distribution of one scorer over a batch of charts: a `MemberChart` with a chart dimension G."""
        spans, nodes, labels = scored
        has_nodes = torch.zeros_like(spans, dtype=torch.bool)
        has_nodes[nodes.document, nodes.start, nodes.end] = True                     # [G, U, U]
        # a span's classes are the mean over its scored nodes, weighted by probability
        where = nodes.document, nodes.start, nodes.end
        total = torch.zeros_like(spans).index_put_(where, nodes.probability, accumulate=True)
        weighted = nodes.probability.unsqueeze(1) * labels                           # [N, C]
        table = labels.new_zeros(*spans.shape, labels.shape[1]).index_put_(where, weighted, accumulate=True)
        table /= total.clamp(min=_MIN_WEIGHT).unsqueeze(-1)                          # [G, U, U, C]
        # or those of its most probable node, if none was scored
        chart, first, last = ((spans > _MIN_SPAN_PROB) & ~has_nodes).nonzero(as_tuple=True)
        best = most_probable_splits(potentials, marginals)[chart, first, last]
        most_probable = SplitPosterior(
            document=chart, start=first, split=best, end=last, probability=spans[chart, first, last]
        )
        table[chart, first, last] = self._labels(scorer, state, layout, units, most_probable)
        chart, first, last = ((spans > _MIN_SPAN_PROB) | has_nodes).nonzero(as_tuple=True)
        classes = table[chart, first, last]                                          # [spans, C]
        sides = [self.classes.restricted(classes, side) for side in (self.classes.left, self.classes.right)]
        restricted = classes.new_zeros(*spans.shape, 2 * self.classes.relations)
        restricted[chart, first, last] = torch.cat(sides, 1)
        change = labels - table[nodes.document, nodes.start, nodes.end]
        return MemberChart(ldd.span_masses(potentials, marginals, restricted), nodes, labels, change)

    def _labels(self, scorer, state: Tensor, layout: Layout, units: Units, nodes: SplitPosterior) -> Tensor:
        """Return P(class | node), [N, C]."""
        chart, first, split, last = nodes[:4]
        places = units.document[chart], units.start[chart, first], units.end[chart, split], units.end[chart, last]
        batch_size = _NODES.get(state.device.type, 65_536)
        logits = scorer.class_logits_of_chart(state, layout, places, batch_size)
        return torch.cat([(batch / self.temperature).softmax(-1) for batch in logits])

    def _most_probable_classes(
        self, states: list[Tensor], layout: Layout, units: Units, trees: list[Tensor]
    ) -> list[Tensor]:
        """Return the most probable class of each node of given trees, under the mixture; of each chart [U - 1], CPU."""
        chart = torch.cat([torch.full((len(tree),), number) for number, tree in enumerate(trees)])
        columns = torch.cat(trees).to(states[0].device).unbind(1)
        nodes = SplitPosterior(chart.to(states[0].device), *columns, columns[0])
        labels = [self._labels(scorer, state, layout, units, nodes) for scorer, state in zip(self.scorers, states)]
        return list(torch.stack(labels).mean(0).argmax(-1).cpu().split([len(tree) for tree in trees]))


def _select_chart(member: MemberChart, chart: int, size: int) -> MemberChart:
    """Return one chart of `size` units from the distribution of a scorer over a batch of charts."""
    chosen = (member.nodes.document == chart).nonzero().squeeze(1)
    nodes = SplitPosterior(*(column[chosen] for column in member.nodes))
    return MemberChart(member.spans[chart, :size, :size], nodes, member.labels[chosen], member.change[chosen])


def document_tree(charts: list[ParsedChart], classes: LabelClasses) -> Tensor:
    """Return the best tree of a document: nodes (start, split, end, nuclearity, relation) in EDUs, int32 [E - 1, 5]."""
    nodes = []
    for chart in charts:
        first, split, last = chart.tree.unbind(1)
        best = chart.tree_classes
        # both sides nuclei, the left one, or the right one: NN, NS, SN
        left, right = classes.left[best], classes.right[best]
        nuclearity = torch.where(left & right, 2, torch.where(left, 0, 1))
        edus = chart.start[first], chart.end[split], chart.end[last]
        nodes.append(torch.stack([*edus, nuclearity, classes.relation[best]], 1))
    return torch.cat(nodes).int()


class DocumentLDD(NamedTuple):
    """The labelled discourse distribution of a document."""

    band: Tensor  # p of the pairs at most b EDUs apart, [E, 2b + 1, R], column b + (other EDU - EDU)
    gamma: Tensor  # (1 / E) sum over all EDUs and relations of p, within the band and beyond, [E]


def document_ldd(charts: list[ParsedChart], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """Return the LDD of a document, in double precision.

    The LDD of a mixture is the mean over its members. With `rows: nucleus` it cannot be computed from pooled nodes,
    because the nuclearity of a leaf depends on the member that its ancestors come from; nodes whose own classes were
    not scored are left out there.
    """
    by_member = zip(*(chart.members for chart in charts))
    bands, gammas = zip(*(_member_ldd(list(member), classes, half_width, rows) for member in by_member))
    return DocumentLDD(sum(bands) / len(bands), sum(gammas) / len(gammas))


def _member_ldd(charts: list[MemberChart], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """Return the LDD of one scorer, from one chart or from the charts of chunks and the chart over them."""
    chunks, upper = (charts[:-1], charts[-1]) if len(charts) > 1 else (charts, None)
    if rows == "side":
        blocks = [ldd.side_distribution(chart.spans, chart.nodes, chart.change, classes) for chart in chunks]
    else:
        blocks = [ldd.discourse_distribution(c.nodes, c.labels, classes, len(c.spans), rows) for c in chunks]
    shares = None
    if upper is None:
        top = blocks[0].new_zeros(1, 1, classes.relations)
    else:
        top = ldd.side_distribution(upper.spans, upper.nodes, upper.change, classes)
    if upper is not None and rows == "nucleus":
        # the parent of an EDU is a node of its chunk; if the EDU is a chunk by itself, a node of the upper chart
        single = torch.tensor([len(chart.spans) == 1 for chart in chunks], device=top.device)
        of_leaves = ldd.discourse_distribution(upper.nodes, upper.labels, classes, len(chunks), rows)
        top = torch.where(single.view(-1, 1, 1), of_leaves, top)
        shares = [ldd.nucleus_leaves(c.nodes, c.labels, classes, len(c.spans))[0, -1] for c in chunks]
    return DocumentLDD(ldd.chunked_band(blocks, top, shares, half_width), ldd.chunked_gamma(blocks, top, shares))
