"""From scores of spans to trees and distributions, for a mixture of scorers and texts of any length."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.discourse_parser.chart import (
    Chart,
    Potentials,
    SplitPosterior,
    best_trees,
    inside,
    likeliest_splits,
    node_marginals,
    span_marginals,
)
from lightning_modules.discourse_parser.ldd import (
    LabelClasses,
    banded,
    chunked_gamma,
    discourse_distribution,
    nucleus_leaves,
    side_distribution,
    span_masses,
)
from lightning_modules.discourse_parser.span_scorer import DiscourseScorer, Layout, Units

_CELLS = 400_000  # spans of charts that are filled together
_LEAST_WEIGHT = 1e-12
_NODES = {"cpu": 4096}  # nodes whose classes are scored together: what a CPU's caches hold; 65,536 elsewhere


class MemberChart(NamedTuple):
    """The distribution of one scorer over the trees of one chart.

    Attributes:
        spans: what `span_masses` says of all nodes, labelled by their spans, [U, U, 2 R].
        nodes: the probable nodes, in units.
        labels: P(class | node) of these, [N, C].
        change: the same, less P(class | span), [N, C].
    """

    spans: Tensor
    nodes: SplitPosterior
    labels: Tensor
    change: Tensor


class Spans(NamedTuple):
    """What one chart says. Its units are EDUs, or chunks of them.

    Attributes:
        start: first EDU of each unit, [U].
        end: last EDU of each unit, [U].
        tree: nodes (start, split, end) of the best tree, in units, [U - 1, 3].
        tree_labels: P(class | node) of these, [U - 1, C].
        members: distribution of each scorer; none where the best tree alone was wanted.
    """

    start: Tensor
    end: Tensor
    tree: Tensor
    tree_labels: Tensor
    members: list[MemberChart]


def cut(sentence: Tensor, paragraph: Tensor, size: int, cap: int) -> list[tuple[int, int]]:
    """Where a long text is cut: into chunks of like size and at most `cap` EDUs, [start, end) each.

    A cut comes near its ideal place where a paragraph begins, else a sentence, else anywhere.

    Args:
        sentence: index of each EDU's sentence, on the host, at least [E].
        paragraph: index of each EDU's paragraph.
        size: EDUs E.
        cap: most EDUs of a chunk, at least 2.
    """
    if size <= cap:
        return [(0, size)]
    target = max(1, 2 * cap // 3)
    count = -(-size // target)
    reach = (cap - target) // 2  # two neighbours may move this far apart
    bounds = [0]
    for number in range(1, count):
        ideal = number * size // count
        window = range(max(bounds[-1] + 1, ideal - reach), min(size - 1, ideal + reach) + 1)
        choices = [
            [at for at in window if unit[at] != unit[at - 1]] for unit in (paragraph.tolist(), sentence.tolist())
        ]
        chosen = next((found for found in choices if found), [ideal])
        bounds.append(min(chosen, key=lambda at: abs(at - ideal)))
    return list(zip(bounds, [*bounds[1:], size]))


class ChartReader:
    """Fills charts with the scores of a mixture of scorers, and reads them.

    With the rule `side`, all nodes count in a distribution: the classes of those above `min_prob` are scored one by
    one; the others, which together hold a few per cent of the probability, take the mean of those over the same span,
    or where there is none the classes of its likeliest node. With `nucleus`, the nodes above `min_prob` alone count.

    Args:
        scorers: the members, each with the same share.
        classes: what the classes are.
        decoding: `mbr`, the tree with the most spans right in expectation; `cky`, the most probable one, of a single
            scorer.
        temperature: class logits are divided by it: below 1, class probabilities are sharper than those of training.

    Raises:
        ValueError: for another decoding, `cky` with a mixture, or a temperature that is not positive.
    """

    def __init__(
        self,
        scorers: nn.ModuleList,
        classes: LabelClasses,
        decoding: Literal["mbr", "cky"] = "mbr",
        temperature: float = 1.0,
    ) -> None:
        if decoding not in ("mbr", "cky"):
            raise ValueError(f"decoding {decoding!r} is neither mbr nor cky")
        if decoding == "cky" and len(scorers) > 1:
            raise ValueError(f"decoding cky needs one scorer, there are {len(scorers)}; a mixture takes mbr")
        if not temperature > 0:
            raise ValueError(f"a class temperature is above 0, got {temperature}")
        self.scorers: Sequence[DiscourseScorer] = scorers
        self.classes, self.decoding, self.temperature = classes, decoding, temperature

    def read(
        self,
        vectors: Tensor,
        layout: Layout,
        cuts: list[list[tuple[int, int]]],
        with_nodes: bool = True,
        min_prob: float = 0.0,
    ) -> list[list[Spans]]:
        """The charts of documents.

        Args:
            vectors: of the EDUs, [B, E, D].
            layout: of the documents.
            cuts: chunks of each document, see `cut`.
            with_nodes: whether the distribution is wanted, and not the best tree alone.
            min_prob: probability above which a node's own classes are scored; 0 for all, which is exact and slow.

        Returns:
            For each document the charts of its chunks and, where there are several, the one over the chunks.
        """
        states = [scorer.context(vectors, layout) for scorer in self.scorers]        # [B, E, H] each
        jobs: list[tuple[int, Tensor, Tensor]] = []
        for document, chunks in enumerate(cuts):
            for first, behind in chunks:
                jobs.append((document, torch.arange(first, behind), torch.arange(first, behind)))
            if len(chunks) > 1:
                bounds = torch.tensor(chunks)
                jobs.append((document, bounds[:, 0], bounds[:, 1] - 1))
        found: dict[int, Spans] = {}
        for chosen in _groups([len(start) for _, start, _ in jobs]):
            charts = self._charts(states, layout, [jobs[i] for i in chosen], with_nodes, min_prob)
            found.update(zip(chosen, charts))
        documents: list[list[Spans]] = [[] for _ in cuts]
        for number, (document, _, _) in enumerate(jobs):
            documents[document].append(found[number])
        return documents

    def _charts(
        self, states: list[Tensor], layout: Layout, jobs: list, with_nodes: bool, min_prob: float
    ) -> Iterator[Spans]:
        device = states[0].device
        starts, ends = (nn.utils.rnn.pad_sequence([job[side] for job in jobs], batch_first=True) for side in (1, 2))
        documents = torch.tensor([document for document, _, _ in jobs])
        sizes = torch.tensor([len(job[1]) for job in jobs])
        units = Units(*(tensor.to(device) for tensor in (documents, starts, ends, sizes)))
        share = 1 / len(self.scorers)
        risk, parts = 0, []
        for scorer, state in zip(self.scorers, states):
            potentials = scorer.potentials(state, layout, units)
            chart = inside(potentials)
            if self.decoding == "mbr":
                risk = risk + share * span_marginals(potentials, units.sizes, chart)
            if with_nodes:
                parts.append(self._distribution(scorer, state, layout, units, potentials, chart, min_prob))
        trees = best_trees(Potentials(risk) if self.decoding == "mbr" else potentials, units.sizes)
        labels = self._tree_labels(states, layout, units, trees)
        for number, (job, tree) in enumerate(zip(jobs, trees)):
            members = [_of_chart(part, number, len(job[1])) for part in parts]
            yield Spans(job[1], job[2], tree, labels[number], members)

    def _distribution(
        self,
        scorer: DiscourseScorer,
        state: Tensor,
        layout: Layout,
        units: Units,
        potentials: Potentials,
        logs: Chart,
        min_prob: float,
    ) -> MemberChart:
        """One member's distribution over all charts together: masses of spans [G, U, U, 2 R]; nodes above `min_prob`,
        their classes, and how far these differ from those of the span, both [N, C]."""
        charts, size = units.start.shape
        there = torch.arange(size, device=state.device) < units.sizes.unsqueeze(1)
        wide = there.new_ones(size, size).triu(1) & there.unsqueeze(1)
        chart, first, last = wide.nonzero(as_tuple=True)
        best = likeliest_splits(potentials, logs)[chart, first, last]
        likely = SplitPosterior(chart, first, best, last, potentials.spans[chart, first, last])
        classes = self._labels(scorer, state, layout, units, likely)                 # [spans, C]
        nodes = node_marginals(potentials, units.sizes, min_prob, logs)
        labels = self._labels(scorer, state, layout, units, nodes)
        # of a span: the mean over its nodes that have classes of their own; a span without any has its likeliest node's
        table = classes.new_zeros(charts, size, size, 1 + classes.shape[1])
        table[chart, first, last] = _LEAST_WEIGHT * torch.cat([torch.ones_like(classes[:, :1]), classes], 1)
        weighted = nodes.probability.unsqueeze(1) * torch.cat([torch.ones_like(labels[:, :1]), labels], 1)
        table.index_put_((nodes.document, nodes.start, nodes.end), weighted, accumulate=True)
        classes = (table[..., 1:] / table[..., :1].clamp(min=_LEAST_WEIGHT))[chart, first, last]
        table = table[..., 1:].index_put((chart, first, last), classes)
        sides = [self.classes.restricted(classes, side) for side in (self.classes.left, self.classes.right)]
        restricted = classes.new_zeros(charts, size, size, 2 * self.classes.relations)
        restricted[chart, first, last] = torch.cat(sides, 1)
        change = labels - table[nodes.document, nodes.start, nodes.end]
        return MemberChart(span_masses(potentials, units.sizes, restricted, logs), nodes, labels, change)

    def _labels(self, scorer, state: Tensor, layout: Layout, units: Units, nodes: SplitPosterior) -> Tensor:
        """P(class | node), [N, C]."""
        found = []
        for some in torch.arange(len(nodes.start), device=state.device).split(_NODES.get(state.device.type, 65_536)):
            chart, first, split, last = (column[some] for column in nodes[:4])
            places = units.start[chart, first], units.end[chart, split], units.end[chart, last]
            logits = scorer.class_logits(state, layout, units.document[chart], *places)
            found.append((logits / self.temperature).softmax(-1))
        return torch.cat(found) if found else state.new_zeros(0, len(self.classes.relation))

    def _tree_labels(self, states: list[Tensor], layout: Layout, units: Units, trees: list[Tensor]) -> list[Tensor]:
        """P(class | node) of the best trees' nodes, a mean over the members; for each chart [U - 1, C], on the host."""
        chart = torch.cat([torch.full((len(tree),), number) for number, tree in enumerate(trees)])
        columns = torch.cat(trees).to(states[0].device).unbind(1)
        nodes = SplitPosterior(chart.to(states[0].device), *columns, columns[0])
        labels = [self._labels(*pair, layout, units, nodes) for pair in zip(self.scorers, states)]
        return list(torch.stack(labels).mean(0).cpu().split([len(tree) for tree in trees]))


def _of_chart(part: MemberChart, chart: int, size: int) -> MemberChart:
    """One chart of `size` units out of a member's distribution over all charts together."""
    chosen = (part.nodes.document == chart).nonzero().squeeze(1)
    nodes = SplitPosterior(*(column[chosen] for column in part.nodes))
    return MemberChart(part.spans[chart, :size, :size], nodes, part.labels[chosen], part.change[chosen])


def _groups(sizes: list[int]) -> Iterator[list[int]]:
    """Charts of like size, so many that they have no more than `_CELLS` spans with padding; one at least."""
    order, at = sorted(range(len(sizes)), key=lambda i: -sizes[i]), 0
    while at < len(order):
        many = max(1, _CELLS // sizes[order[at]] ** 2)
        yield order[at : at + many]
        at += many


def document_tree(charts: list[Spans], classes: LabelClasses) -> Tensor:
    """The best tree of a document: nodes (start, split, end, nuclearity, relation) over EDUs, int32 [E - 1, 5]."""
    nodes = []
    for chart in charts:
        first, split, last = chart.tree.unbind(1)
        best = chart.tree_labels.argmax(-1)
        # both sides nuclei, the left one, or the right one: NN, NS, SN
        left, right = classes.left[best], classes.right[best]
        nuclearity = torch.where(left & right, 2, torch.where(left, 0, 1))
        places = chart.start[first], chart.end[split], chart.end[last]
        nodes.append(torch.stack([*places, nuclearity, classes.relation[best]], 1))
    return torch.cat(nodes).int()


class DocumentLDD(NamedTuple):
    """The labelled discourse distribution of a document.

    Attributes:
        band: p of the pairs at most b EDUs apart, [E, 2b + 1, R], column b + (other EDU - EDU).
        gamma: (1 / E) sum over all EDUs and relations of p, within the band and beyond, [E].
    """

    band: Tensor
    gamma: Tensor


def document_ldd(charts: list[Spans], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """The LDD of a document, in double precision.

    A mixture's is the mean of its members' LDDs. With `rows: nucleus` it cannot be read from their pooled nodes: the
    nuclearity of a leaf depends on the member that the nodes above it come from. Nodes that have no classes of their
    own are left out there.
    """
    by_member = zip(*(chart.members for chart in charts))
    bands, gammas = zip(*(_member_ldd(list(member), classes, half_width, rows) for member in by_member))
    return DocumentLDD(sum(bands) / len(bands), sum(gammas) / len(gammas))


def _member_ldd(charts: list[MemberChart], classes: LabelClasses, half_width: int, rows: str) -> DocumentLDD:
    """The LDD of one scorer's distribution over one chart, or over chunks and the chart over them."""
    chunks, over = (charts[:-1], charts[-1]) if len(charts) > 1 else (charts, None)
    if rows == "side":
        blocks = [side_distribution(chart.spans, chart.nodes, chart.change, classes) for chart in chunks]
    else:
        blocks = [discourse_distribution(c.nodes, c.labels, classes, len(c.spans), rows) for c in chunks]
    shares = None
    if over is None:
        top = blocks[0].new_zeros(1, 1, classes.relations)
    else:
        top = side_distribution(over.spans, over.nodes, over.change, classes)
    if over is not None and rows == "nucleus":
        # the parent of a leaf is in its chunk, and that of a chunk of one leaf in the chart over the chunks
        single = torch.tensor([len(chart.spans) == 1 for chart in chunks], device=top.device)
        of_leaves = discourse_distribution(over.nodes, over.labels, classes, len(chunks), rows)
        top = torch.where(single.view(-1, 1, 1), of_leaves, top)
        shares = [nucleus_leaves(c.nodes, c.labels, classes, len(c.spans))[0, -1] for c in chunks]
    return DocumentLDD(banded(blocks, top, shares, half_width), chunked_gamma(blocks, top, shares))
