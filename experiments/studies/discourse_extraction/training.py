"""Arms of extraction with and without discourse, and their training and scoring by cross-validation."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from scipy import stats
from torch import Tensor

from datamodules.discourse.ablations import OtherDiscourse, document_seed, permute_pairs
from datamodules.discourse.distributions import decode, resize
from experiments.studies.discourse_extraction.documents import SentenceFeatures, SummarizedDocument
from experiments.studies.discourse_extraction.ranker import Inputs, RankingBatch, SentenceRanker, collate
from lightning_modules.metrics.rouge import score_many
from lightning_modules.rstformer.injection import Ablation, DiscourseInjection, Injection

FOLDS, BATCH, HEADS = 10, 16, 2
RATE, INJECTION_FACTOR = 2e-3, 10.0
TEMPERATURE = 0.1
MEASURES = ("rank correlation", "ROUGE-1", "ROUGE-2")


class Arm(NamedTuple):
    """Discourse information that a ranker gets about a document.

    Attributes:
        name: name of the arm.
        structure: name of a distribution, see `documents.structures_of`; None for no discourse.
        control: `permuted` (over pairs of sentences), `other` (another document's), or none.
        sums: whether `band_sums` are inputs instead of attention with discourse.
        by_relation: whether a linear ranker also has these sums for each relation.
        injection: injection of discourse into attention, see `DiscourseInjection`.
        ablation: `none` or `wac`, see `DiscourseInjection`.
        labels: whether every head learns a weight for each relation; without, it reads their sum.
    """

    name: str
    structure: str | None = None
    control: str | None = None
    sums: bool = False
    by_relation: bool = False
    injection: Injection = "log_bias"
    ablation: Ablation = "none"
    labels: bool = True

    @property
    def of_attention(self) -> bool:
        """Whether the arm differs from another one in attention alone, so that a linear ranker would repeat it."""
        return self.sums or not self.labels or self.injection != "log_bias" or self.ablation != "none"


ARMS = (
    Arm("none"),
    *(Arm(f"{structure}, {control}", structure, control)
      for structure in ("gold", "parser") for control in ("permuted", "other")),
    Arm("gold", "gold"),
    Arm("parser", "parser"),
    Arm("parser, best tree", "parser, best tree"),
    Arm("gold, sums as inputs", "gold", sums=True),
    Arm("parser, sums as inputs", "parser", sums=True),
    Arm("parser, by relation", "parser", by_relation=True),
    Arm("parser, by relation, other", "parser", "other", by_relation=True),
    Arm("parser, best tree, by relation", "parser, best tree", by_relation=True),
    Arm("parser, no labels", "parser", labels=False),
    Arm("parser, one_plus", "parser", injection="one_plus"),
    Arm("parser, one_plus, other", "parser", "other", injection="one_plus"),
    Arm("parser, product", "parser", injection="product"),
    Arm("parser, product, other", "parser", "other", injection="product"),
    Arm("parser, wac", "parser", ablation="wac"),
    Arm("parser, wac, other", "parser", "other", ablation="wac"),
)  # fmt: skip
ARMS_BY_NAME = {arm.name: arm for arm in ARMS}


class Documents(NamedTuple):
    """Documents sorted by their number of sentences, and their features.

    Attributes:
        documents: documents with texts and summaries.
        features: features of the documents, in the same order.
        folds: fold in which each document is held out.
    """

    documents: list[SummarizedDocument]
    features: list[SentenceFeatures]
    folds: list[int]


def in_folds(documents: Sequence[SummarizedDocument], features: Sequence[SentenceFeatures]) -> Documents:
    """Assign every tenth document to the same fold, as treebanks list genres together, and sort by length."""
    order = sorted(range(len(features)), key=lambda number: len(features[number].target))
    return Documents([documents[i] for i in order], [features[i] for i in order], [i % FOLDS for i in order])


def bands_of(
    arm: Arm, features: Sequence[SentenceFeatures], half_width: int, others: OtherDiscourse | None = None
) -> list[Tensor]:
    """Return the distribution that an arm gives for each document, [S, 2 half_width + 1, R]."""
    bands = []
    for document in features:
        parse = document.structures[arm.structure]
        if arm.control == "other":
            codes = resize(others.codes(parse, parse.size), half_width)
        else:
            codes = parse.code(half_width)
        if arm.control == "permuted":
            codes = permute_pairs(codes, document_seed(0, parse.text_digest))
        bands.append(decode(codes))
    return bands


def batches_of(arm: Arm, corpus: Documents, planted: bool = False) -> list[RankingBatch]:
    """Return batches of `BATCH` documents of similar length.

    Args:
        arm: arm that determines their discourse information.
        corpus: documents sorted by length.
        planted: whether the target is the nuclearity of a sentence in the gold tree instead of its share of the
            summaries: a task that the gold tree solves, which shows whether the ranker can read it.
    """
    others = None
    if arm.control == "other":
        longest = max(len(document.target) for document in corpus.features)
        others = OtherDiscourse(longest, 0, [document.structures[arm.structure] for document in corpus.features])
    batches = []
    for start in range(0, len(corpus.features), BATCH):
        rows = corpus.features[start : start + BATCH]
        half_width = max(len(row.target) for row in rows) - 1
        bands = None if arm.structure is None else bands_of(arm, rows, half_width, others)
        targets = [row.structures["gold"].gamma if planted else row.target for row in rows]
        batches.append(collate([row.vectors for row in rows], [row.places for row in rows], targets, bands))
    return batches


def make_ranker(arm: Arm, inputs: Inputs, batch: RankingBatch) -> SentenceRanker:
    """Return a new ranker for documents like those of a batch."""
    injection = None
    if arm.structure is not None and not arm.sums:
        # every head begins with the sum over all relations
        weights = torch.ones(HEADS, batch.band.shape[-1])
        injection = DiscourseInjection(weights, arm.injection, arm.ablation, learn_weights=arm.labels)
    return SentenceRanker(
        inputs,
        injection,
        batch.vectors.shape[-1],
        with_sums=arm.sums,
        place_size=batch.places.shape[-1],
        heads=HEADS,
    )


class RankerStack:
    """Rankers that differ in their seed, computed together.

    Args:
        models: R of them, of the same kind.
    """

    def __init__(self, models: Sequence[SentenceRanker]) -> None:
        self.model = models[0]
        self.weights, self.buffers = torch.func.stack_module_state(list(models))      # [R, ...] each

    def __call__(self, batch: RankingBatch) -> Tensor:
        """Return the scores of the sentences by each ranker, [R, B, S]."""

        def score(weights: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(self.model, (weights, buffers), (batch,))

        return torch.vmap(score, randomness="different")(self.weights, self.buffers)

    def groups(self) -> list[dict[str, Any]]:
        """Return parameters with their peak learning rates: those of the injection learn faster."""
        injected = [value for name, value in self.weights.items() if name.startswith("injection.")]
        others = [value for name, value in self.weights.items() if not name.startswith("injection.")]
        groups = [{"params": others, "lr": RATE}, {"params": injected, "lr": INJECTION_FACTOR * RATE}]
        return [group for group in groups if group["params"]]


def train_fold(
    arm: Arm, inputs: Inputs, batches: Sequence[RankingBatch], held_out: Tensor, seeds: Sequence[int], epochs: int
) -> RankerStack:
    """Train a ranker for each seed on the documents that are not held out.

    The loss is that of BertSum with soft labels: cross-entropy with the softmax of target / temperature. Documents that
    are held out stay in their batch without a share in the loss, so that all folds have the same batches. The rankers
    differ in weights and dropout, and read the batches in the same order.

    Args:
        arm: discourse information.
        inputs: representation of a sentence.
        batches: all documents.
        held_out: True at documents that are held out, [N].
        seeds: R seeds.
        epochs: number of passes over the documents.
    """
    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(make_ranker(arm, inputs, batches[0]))
    rankers = RankerStack(models)
    groups = rankers.groups()
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    peaks, steps = [group["lr"] for group in groups], epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peaks, total_steps=steps, pct_start=0.1)
    shares = (~held_out).float().split(BATCH)
    generator = torch.Generator().manual_seed(seeds[0])
    for _ in range(epochs):
        for number in torch.randperm(len(batches), generator=generator).tolist():
            optimizer.zero_grad()
            # Sum over rankers, so that the gradient of each ranker is that of its own mean loss.
            mean_loss(rankers(batches[number]), batches[number], shares[number]).sum().backward()
            clip_each(list(rankers.weights.values()), 1.0)
            optimizer.step()
            schedule.step()
    rankers.model.eval()
    return rankers


def mean_loss(scores: Tensor, batch: RankingBatch, share: Tensor) -> Tensor:
    """Return the loss of each ranker, [R].

    Args:
        scores: scores of the sentences, [R, B, S].
        batch: the documents.
        share: 1 for documents of the training folds, 0 for others, [B].
    """
    target = (batch.target / TEMPERATURE).masked_fill(~batch.mask, -1e4).softmax(1)   # [B, S]
    log_probs = scores.masked_fill(~batch.mask, -1e4).log_softmax(-1)                 # [R, B, S]
    losses = -(target * log_probs).sum(-1)                                            # [R, B]
    return (losses * share).sum(1) / share.sum().clamp(min=1)


def clip_each(stacked: Sequence[Tensor], largest: float) -> None:
    """Clip the norm of the gradient of each model of a stack; the first dimension is that of the models."""
    squares = sum(parameter.grad.reshape(len(parameter), -1).square().sum(1) for parameter in stacked)  # [R]
    factor = largest / squares.sqrt().clamp(min=largest)                             # [R]
    for parameter in stacked:
        parameter.grad.mul_(factor.view(-1, *[1] * (parameter.dim() - 1)))


def cross_validate(
    arm: Arm, inputs: Inputs, batches: Sequence[RankingBatch], corpus: Documents, seeds: Sequence[int], epochs: int
) -> list[list[Tensor]]:
    """Return for each seed the scores of the sentences of each document, [S], by the ranker that has not seen it."""
    scores: list[list[Tensor]] = [[torch.empty(0)] * len(corpus.folds) for _ in seeds]
    folds = torch.tensor(corpus.folds)
    for fold in range(FOLDS):
        rankers = train_fold(arm, inputs, batches, folds == fold, seeds, epochs)
        for start, batch in zip(range(0, len(folds), BATCH), batches):
            with torch.no_grad():
                predicted = rankers(batch)                                            # [R, B, S]
            for row in (folds[start : start + BATCH] == fold).nonzero().flatten().tolist():
                for of_seed, values in zip(scores, predicted[:, row]):
                    of_seed[start + row] = values[: len(corpus.features[start + row].target)]
    return scores


def measure(
    scores: Sequence[Tensor], corpus: Documents, planted: bool = False, number: int | None = 3
) -> list[list[float]]:
    """Return the `MEASURES` of each document.

    They are Spearman's correlation of scores and target (0 where all scores are equal), and ROUGE-1 and ROUGE-2 F x 100
    of the best sentences, in the order of the text, averaged over the summaries.

    Args:
        scores: scores of the sentences of each document, [S] each.
        corpus: the documents in the same order.
        planted: as in `batches_of`.
        number: number of sentences to extract; None for as many as the summaries have.
    """
    correlations, summaries = [], []
    for row, document, features in zip(scores, corpus.documents, corpus.features):
        target = features.structures["gold"].gamma if planted else features.target
        rounded, target = row.double().round(decimals=5), target.double()  # equal but for rounding is equal
        has_ranks = len(rounded.unique()) > 1 and len(target.unique()) > 1
        correlations.append(float(stats.spearmanr(rounded, target).statistic) if has_ranks else 0.0)
        best = row.argsort(descending=True, stable=True)[: document.number(number)].sort().values
        sentences = document.sentences
        summaries.append([sentences[place] for place in best.tolist()])
    references = [[[summary] for summary in document.summaries] for document in corpus.documents]
    rouge = score_many(summaries, references, ("rouge1", "rouge2"), multi_reference="mean")
    return [
        [rho, 100 * score["rouge1"].fmeasure, 100 * score["rouge2"].fmeasure]
        for rho, score in zip(correlations, rouge)
    ]
