"""Best trees and tree distributions of a mixture of scorers, for texts of any length."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from lightning_modules.discourse_parser import ldd
from lightning_modules.discourse_parser.chart import (
    Potentials,
    SplitPosterior,
    all_marginals,
    best_trees,
    most_probable_splits,
    node_marginals,
    span_marginals,
)
from lightning_modules.discourse_parser.ldd import LabelClasses
from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units
from lightning_modules.networks.passages import batches_of_similar_size

_CELLS = 400_000  # maximum number of spans, padding included, of charts that are computed together, to bound memory
_MIN_WEIGHT = 1e-12  # avoids a division by zero for spans without a scored node
_MIN_SPAN_PROB = 1e-5  # less probable spans without a scored node are left out of the LDD
_MIN_NODE_PROB = 1e-3  # less probable nodes do not count towards the expected numbers of correct labels
_NODES = {"cpu": 4096}  # nodes whose classes are scored together, so that they fit into CPU caches; 65,536 elsewhere

Decoding = Literal["mbr", "mbr_spans", "cky"]


class MemberChart(NamedTuple):
    """Tree distribution of one scorer (mixture member) over a chart of U units (EDUs or chunks); see `ChartReader`."""

    spans: Tensor  # `span_masses` of all nodes, with the class distributions of their spans, [U, U, 2 R]
    nodes: SplitPosterior  # the N nodes whose classes were scored one by one, as indices of units
    labels: Tensor  # P(class | node) of these nodes, [N, C]
    change: Tensor  # P(class | node) - P(class | span) of these nodes, [N, C]


class ParsedChart(NamedTuple):
    """Best tree and tree distributions of one chart, whose U units are EDUs or chunks of EDUs."""

    start: Tensor  # first EDU of each unit, [U]
    end: Tensor  # last EDU of each unit, [U]
    tree: Tensor  # nodes (start, split, end) of the best tree, in units, [U - 1, 3]
    tree_classes: Tensor  # class (nuclearity and relation) of each of these nodes, [U - 1]
    members: list[MemberChart]  # distribution of each scorer; empty if only the best tree was requested


def chunk_bounds(sentence: Tensor, paragraph: Tensor, size: int, max_edus: int) -> list[tuple[int, int]]:
    """Split a text of `size` EDUs into chunks of at most `max_edus` >= 2, similar in size: (start, end), end exclusive.

    A boundary is the start of a paragraph near the ideal position, else the start of a sentence, else the position
    itself. `sentence` and `paragraph` are the indices of the sentence and the paragraph of each EDU, on the CPU, [E].
    """
    if size <= max_edus:
        return [(0, size)]
    target = 2 * max_edus // 3  # ideal chunks are shorter than the maximum, so that their boundaries can move
    count = -(-size // target)  # rounded up
    reach = (max_edus - target) // 2  # both boundaries of a chunk can move this far without exceeding max_edus
    sentences, paragraphs = sentence.tolist(), paragraph.tolist()
    starts = [0]
    for number in range(1, count):
        ideal = number * size // count
        nearby = range(max(starts[-1] + 1, ideal - reach), min(size - 1, ideal + reach) + 1)  # no chunk is empty
        candidates = [ideal]
        for unit_of_edu in (sentences, paragraphs):  # sentence starts, if any, replace the ideal, then paragraph starts
            candidates = [edu for edu in nearby if unit_of_edu[edu] != unit_of_edu[edu - 1]] or candidates
        starts.append(min(candidates, key=lambda edu: abs(edu - ideal)))
    return list(zip(starts, [*starts[1:], size]))  # a chunk ends where the next one starts


class ChartReader:
    """Computes best trees and tree distributions from a mixture of scorers, with equal weights.

    The LDD (labeled discourse distribution) is p(EDU a is the nucleus of EDU b under a relation): a is in the nucleus
    of the lowest node over both and, with `rows: nucleus`, also a nucleus of its own parent; then only nodes above
    `min_prob` count. With `rows: side`, all nodes count, and the classes of nodes above `min_prob` are scored one by
    one. The remaining nodes, a few per cent of the probability, get the mean class distribution of the scored nodes
    over the same span. If none was scored, they get that of the span's most probable node, or are left out if P(span)
    <= 1e-5. Shapes: B documents of E EDUs; G charts of U units, N nodes, C classes, R relations.

    Args:
        scorers, classes: members of the mixture; nuclearity and relation of each class.
        decoding: `mbr`, the labeled tree with the highest expected sum of correct spans, nuclearities, relations and
            classes (minimum Bayes risk); `mbr_spans`, the tree with the highest expected number of correct spans, each
            node with its most probable class; `cky`, the most probable tree, for a single scorer.
        temperature: divides class logits; below 1, class probabilities are sharper than in training.
        autocast: makes the context in which spans and classes are scored, for their precision.

    Raises:
        ValueError: if `decoding` is unknown or `cky` with a mixture, or the temperature is not positive.
    """

    def __init__(
        self,
        scorers: nn.ModuleList,
        classes: LabelClasses,
        decoding: Decoding = "mbr",
        temperature: float = 1.0,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
    ) -> None:
        if decoding not in get_args(Decoding):
            raise ValueError(f"decoding {decoding!r} is none of {', '.join(get_args(Decoding))}")
        if decoding == "cky" and len(scorers) > 1:
            raise ValueError(f"decoding cky needs one scorer, there are {len(scorers)}; a mixture takes mbr")
        if not temperature > 0:
            raise ValueError(f"a class temperature is above 0, got {temperature}")
        self.scorers: Sequence[DiscourseScorer] = scorers  # typed, which a ModuleList is not
        self.classes = classes
        self.decoding = decoding
        self.temperature = temperature
        self.autocast = autocast

    @torch.no_grad()
    def compute_charts(
        self,
        vectors: Tensor,
        layout: Layout,
        chunks: list[list[tuple[int, int]]],
        with_nodes: bool = True,
        min_prob: float = 0.0,
    ) -> list[list[ParsedChart]]:
        """Compute the charts of each document: one for each chunk and, if there are several chunks, one over them.

        `vectors` are EDU vectors, [B, E, D], `chunks` the `chunk_bounds` of documents. Without `with_nodes`, charts
        have best trees but no distributions. Nodes above `min_prob` are scored one by one; 0 scores each node, slowly.
        """
        tables = [scorer.tables(vectors, layout) for scorer in self.scorers]  # of terms of spans
        jobs: list[tuple[int, Tensor, Tensor]] = []  # document; first and last EDU of each unit of a chart, [U]
        for document, bounds in enumerate(chunks):
            for start, end in bounds:  # the units of a chunk's chart are EDUs, each its own first and last EDU
                jobs.append((document, torch.arange(start, end), torch.arange(start, end)))
            if len(bounds) > 1:  # the units of the chart over the chunks are the chunks
                first, end = torch.tensor(bounds).unbind(1)
                jobs.append((document, first, end - 1))
        charts: dict[int, ParsedChart] = {}
        spans_of_jobs = [len(first) ** 2 for _, first, _ in jobs]  # a chart stores U^2 spans
        for batch in batches_of_similar_size(spans_of_jobs, _CELLS):  # indices of jobs; batches bound memory
            charts.update(zip(batch, self._charts(tables, layout, [jobs[i] for i in batch], with_nodes, min_prob)))
        by_document: list[list[ParsedChart]] = [[] for _ in chunks]
        for number, (document, _, _) in enumerate(jobs):
            by_document[document].append(charts[number])
        return by_document

    def _charts(
        self, tables: list[list[Tensor]], layout: Layout, jobs: list, with_nodes: bool, min_prob: float
    ) -> Iterator[ParsedChart]:
        """Yield the charts of G jobs (document, first EDUs and last EDUs of units), computed as one padded batch."""
        documents, first_edus, last_edus = zip(*jobs)
        sizes = torch.tensor([len(edus) for edus in first_edus])                     # [G]
        starts, ends = (nn.utils.rnn.pad_sequence(edus, batch_first=True) for edus in (first_edus, last_edus))
        units = Units(*(tensor.to(layout.sentence.device) for tensor in (torch.tensor(documents), starts, ends, sizes)))
        weight = 1 / len(self.scorers)
        span_probs = 0  # P(span is a node) under the mixture, [G, U, U]
        probable = []  # `_class_marginals` of each scorer
        members = []
        for scorer, terms in zip(self.scorers, tables):
            with self.autocast():
                potentials = scorer.potentials(terms, layout, units)
            marginals = all_marginals(potentials, units.sizes)
            member_spans = span_marginals(potentials, marginals)                     # [G, U, U]
            span_probs = span_probs + weight * member_spans
            label_nodes = partial(self._labels, scorer, terms, layout, units)  # from nodes to P(class | node), [N, C]
            if with_nodes or self.decoding == "mbr":
                # the nodes whose classes are scored one by one; best trees need only probable ones
                threshold = min_prob if with_nodes else _MIN_NODE_PROB
                nodes = node_marginals(potentials, marginals, threshold)
                labels = label_nodes(nodes)                                          # [N, C]
            if self.decoding == "mbr":
                probable.append(_class_marginals(nodes, labels, len(starts[0])))
            if with_nodes:
                members.append(self._distribution(potentials, marginals, member_spans, nodes, labels, label_nodes))
        if self.decoding == "mbr":
            trees, tree_classes = self._best_labelled_trees(span_probs, probable, units.sizes)
        else:  # cky has a single scorer, whose potentials are those of the loop
            scores = Potentials(span_probs) if self.decoding == "mbr_spans" else potentials
            trees = best_trees(scores, units.sizes)
            tree_classes = self._most_probable_classes(tables, layout, units, trees)
        for number, (first, last, tree) in enumerate(zip(first_edus, last_edus, trees)):
            by_member = [_select_chart(member, number, len(first)) for member in members]  # without padding
            yield ParsedChart(start=first, end=last, tree=tree, tree_classes=tree_classes[number], members=by_member)

    def _best_labelled_trees(
        self, spans: Tensor, probable: list[tuple[Tensor, Tensor]], sizes: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return nodes (start, split, end) [U - 1, 3] and classes [U - 1] of each chart's best tree, on the CPU.

        `spans` are P(span is a node) under the mixture, [G, U, U], `probable` the `_class_marginals` of each scorer.
        """
        nodes = torch.cat([nodes for nodes, _ in probable])  # spans of n nodes, as indices of the flattened `spans`
        classes = torch.cat([classes for _, classes in probable]) / len(probable)    # P(node of each class), [n, C]
        distinct, rows = nodes.unique(return_inverse=True)  # nodes may share one of the S spans: [S], [n]
        class_probs = classes.new_zeros(len(distinct), classes.shape[1]).index_add_(0, rows, classes)  # [S, C]
        # a node (i, j) of class c adds to the expected number of correct spans and labels: P(i, j), from `spans`, and
        # P(i, j, nuclearity of c) + P(i, j, relation of c) + P(i, j, c), sums of `class_probs` over those that agree
        gain, best_class = (class_probs @ self.classes.agreement().to(classes)).max(-1)  # [S] each
        scores = spans.flatten().index_add(0, distinct, gain.to(spans)).view_as(spans)
        best_classes = torch.zeros_like(spans, dtype=torch.long)  # 0 for spans without a probable node
        best_classes.view(-1)[distinct] = best_class
        trees = best_trees(Potentials(scores), sizes)
        return trees, [by_span[tree[:, 0], tree[:, 2]] for by_span, tree in zip(best_classes.cpu(), trees)]

    def _distribution(
        self, potentials: Potentials, marginals: list, spans: Tensor, nodes: SplitPosterior, labels: Tensor, label_nodes
    ) -> MemberChart:
        """Return the distribution of one scorer over G charts of U units: a `MemberChart` with a chart dimension.

        `marginals` are those of `all_marginals`, `spans` P(span is a node), [G, U, U], and `labels` P(class | node) of
        the N `nodes` that are scored one by one, [N, C]. `label_nodes` computes labels of other nodes. A "mass" is
        P(node, label) - P(child of a node, its label) of a span; `span_masses` tells how sums of masses give the LDD.
        """
        node_spans = nodes.document, nodes.start, nodes.end                          # [N] each
        included = spans > _MIN_SPAN_PROB
        included[node_spans] = True
        places = chart, first, last = included.nonzero(as_tuple=True)  # the S spans that are not left out, [S] each
        rows = torch.zeros_like(spans, dtype=torch.long)
        rows[places] = torch.arange(len(chart), device=chart.device)
        node_rows = rows[node_spans]  # the span of each node, as an index of `places`, [N]
        # the class distribution of a span is the mean over its scored nodes, weighted by probability
        total = spans.new_zeros(len(chart)).index_add_(0, node_rows, nodes.probability)              # [S]
        weighted = nodes.probability.unsqueeze(1) * labels                           # [N, C]
        span_labels = labels.new_zeros(len(chart), labels.shape[1]).index_add_(0, node_rows, weighted)
        span_labels /= total.clamp(min=_MIN_WEIGHT).unsqueeze(-1)  # [S, C]; 0 without scored nodes
        # a span without a scored node takes the class distribution of its most probable node
        unscored = (total == 0).nonzero().squeeze(1)
        chart, first, last = unscored_spans = tuple(index[unscored] for index in places)
        split = most_probable_splits(potentials, marginals)[unscored_spans]
        span_labels[unscored] = label_nodes(SplitPosterior(chart, first, split, last, spans[unscored_spans]))
        # P(relation, this side is a nucleus): sums over classes
        sides = [self.classes.restricted(span_labels, side) for side in (self.classes.left, self.classes.right)]
        side_probs = labels.new_zeros(*spans.shape, 2 * self.classes.relations)
        side_probs[places] = torch.cat(sides, 1)  # P(relation, left part is a nucleus), then right, [S, 2 R]
        change = labels - span_labels[node_rows]  # correction for nodes that were scored one by one, [N, C]
        return MemberChart(ldd.span_masses(potentials, marginals, side_probs), nodes, labels, change)

    def _labels(self, scorer, tables: list[Tensor], layout: Layout, units: Units, nodes: SplitPosterior) -> Tensor:
        """Return P(class | node) by one scorer, whose tables are given, [N, C], for nodes in units."""
        chart, first, split, last = nodes[:4]  # all but the probability
        in_edus = units.document[chart], units.start[chart, first], units.end[chart, split], units.end[chart, last]
        batch_size = _NODES.get(chart.device.type, 65_536)  # on a CPU, a batch fits into caches
        with self.autocast():
            logits = scorer.class_logits_of_chart(tables, layout, in_edus, batch_size)
            return torch.cat([(batch / self.temperature).softmax(-1) for batch in logits])

    def _most_probable_classes(
        self, tables: list[list[Tensor]], layout: Layout, units: Units, trees: list[Tensor]
    ) -> list[Tensor]:
        """Return the most probable class of each node of `trees` under the mixture, [U - 1] per tree, on the CPU."""
        sizes = [len(tree) for tree in trees]
        chart = torch.arange(len(trees)).repeat_interleave(torch.tensor(sizes)).to(units.start.device)
        start, split, end = torch.cat(trees).to(units.start.device).unbind(1)         # [N] each
        nodes = SplitPosterior(chart, start, split, end, probability=start)  # a placeholder, not read by `_labels`
        labels = [self._labels(scorer, terms, layout, units, nodes) for scorer, terms in zip(self.scorers, tables)]
        return list(torch.stack(labels).mean(0).argmax(-1).cpu().split(sizes))  # of the mean P(class | node)


def _class_marginals(nodes: SplitPosterior, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return spans, as indices (chart U + start) U + end with U = `size`, and P(node of each class) of probable nodes.

    From `labels`, P(class | node), [N, C], of N `nodes`, those with P(node) > 0.001: [n], [n, C].
    """
    probable = (nodes.probability > _MIN_NODE_PROB).nonzero().squeeze(1)
    chart, first, _, last, probability = (column[probable] for column in nodes)  # all but the split
    return (chart * size + first) * size + last, probability.unsqueeze(1) * labels[probable]


def _select_chart(member: MemberChart, chart: int, size: int) -> MemberChart:
    """Return the chart with index `chart`, which has `size` units, without padding, from a scorer's batch of charts."""
    in_chart = (member.nodes.document == chart).nonzero().squeeze(1)                 # indices of nodes
    nodes = SplitPosterior(*(column[in_chart] for column in member.nodes))
    return MemberChart(member.spans[chart, :size, :size], nodes, member.labels[in_chart], member.change[in_chart])


def document_tree(charts: list[ParsedChart], classes: LabelClasses) -> Tensor:
    """Return the best tree of a document: nodes (start, split, end, nuclearity, relation) in EDUs, int32 [E - 1, 5]."""
    nodes = []
    for chart in charts:  # the trees of chunks are subtrees of the tree over the chunks, whose chart is the last
        first, split, last = chart.tree.unbind(1)                                    # in units, [U - 1] each
        left_is_nucleus = classes.left[chart.tree_classes]
        right_is_nucleus = classes.right[chart.tree_classes]
        one_nucleus = torch.where(left_is_nucleus, 0, 1)  # indices of `NUCLEARITIES`: 0 is NS, 1 SN, 2 NN
        nuclearity = torch.where(left_is_nucleus & right_is_nucleus, 2, one_nucleus)
        edus = chart.start[first], chart.end[split], chart.end[last]  # units -> EDUs; split: last EDU of the left part
        nodes.append(torch.stack([*edus, nuclearity, classes.relation[chart.tree_classes]], 1))
    return torch.cat(nodes).int()


class DocumentLDD(NamedTuple):
    """The labeled discourse distribution of a document: p(EDU a is the nucleus of EDU b under a relation)."""

    band: Tensor  # p of all pairs at most h EDUs apart, [E, 2h + 1, R], at row a and column h + b - a
    gamma: Tensor  # importance of each EDU a: mean over all b, beyond the band too, of p summed over relations, [E]


def document_ldd(charts: list[ParsedChart], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """Return the labeled discourse distribution (LDD), for EDUs at most `half_width` apart.

    The LDD of a mixture is the mean over its members, as is gamma, the importance of EDUs. With `rows: side`, it is
    computed once, from the nodes of all members; with `rows: nucleus`, an EDU must be a nucleus of its parent, and the
    parent is in a tree of the same member. `charts` are those of the document, the one over chunks last.
    """
    if rows == "side":
        charts_by_member = [[_mixture(chart.members) for chart in charts]]
    else:  # all charts of the first scorer, of the second, ...
        charts_by_member = [list(member_charts) for member_charts in zip(*(chart.members for chart in charts))]
    ldds = [_member_ldd(member_charts, classes, half_width, rows) for member_charts in charts_by_member]
    return DocumentLDD(sum(band for band, _ in ldds) / len(ldds), sum(gamma for _, gamma in ldds) / len(ldds))


def _mixture(members: list[MemberChart]) -> MemberChart:
    """Return the chart whose masses and node probabilities are the means over `members`."""
    nodes = SplitPosterior(*(torch.cat(columns) for columns in zip(*(member.nodes for member in members))))
    nodes = nodes._replace(probability=nodes.probability / len(members))
    spans = sum(member.spans for member in members) / len(members)
    labels = torch.cat([member.labels for member in members])
    return MemberChart(spans, nodes, labels, change=torch.cat([member.change for member in members]))


def _member_ldd(charts: list[MemberChart], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """Return LDD and gamma (importance of EDUs) by one scorer; `charts`: one, or one per chunk and one over all."""
    chunks, upper = (charts[:-1], charts[-1]) if len(charts) > 1 else (charts, None)
    if rows == "side":  # p(EDU a is the nucleus of b under a relation) within each chunk of E_c EDUs, [E_c, E_c, R]
        blocks = [ldd.side_distribution(chart.spans, chart.nodes, chart.change, classes) for chart in chunks]
    else:
        blocks = [ldd.nucleus_distribution(c.nodes, c.labels, classes, len(c.spans)) for c in chunks]
    leaf_probs = None  # with `rows: nucleus` and several chunks, P(EDU is a nucleus of its parent), [E_c] each
    if upper is None:
        top = blocks[0].new_zeros(1, 1, classes.relations)  # a single chunk has no other chunk
    else:  # p between chunks, [chunks, chunks, R]; `chunked_band` multiplies it by `leaf_probs`
        top = ldd.side_distribution(upper.spans, upper.nodes, upper.change, classes)
    if upper is not None and rows == "nucleus":
        # an EDU's parent is in its chunk, or in `upper` if the EDU is the whole chunk: its row is from `top_of_one_edu`
        is_one_edu = torch.tensor([len(chart.spans) == 1 for chart in chunks], device=top.device)
        top_of_one_edu = ldd.nucleus_distribution(upper.nodes, upper.labels, classes, len(chunks))
        top = torch.where(is_one_edu.view(-1, 1, 1), top_of_one_edu, top)
        # [0, -1]: given the root of the chunk, which spans its first EDU (0) to its last (-1)
        leaf_probs = [ldd.nucleus_leaves(c.nodes, c.labels, classes, len(c.spans))[0, -1] for c in chunks]
    band = ldd.chunked_band(blocks, top, leaf_probs, half_width)
    return DocumentLDD(band, ldd.chunked_gamma(blocks, top, leaf_probs))
