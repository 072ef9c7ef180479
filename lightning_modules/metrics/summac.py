"""SummaC (Laban et al. 2022): is a summary entailed by its source, sentence by sentence?"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from lightning_modules.metrics.pair_classifier import NEGATED, PairClassifier, Sentences, without_blank

LABELS = ("entailment", "contradiction", "neutral")
# Parts of the names that checkpoints give to the three classes: names of MNLI, and of FEVER and VitaminC.
SYNONYMS = {
    "entailment": ("entail", "support"),
    "contradiction": ("contradict", "refute"),
    "neutral": ("neutral", "not enough"),
}
# Edges of the authors' 23 bins, percentiles of the entailment probabilities of VitaminC's model: fine near 0 and 1.
PERCENTILE_EDGES = (
    *(0.0, 0.01, 0.02, 0.03, 0.04, 0.07, 0.13, 0.37),
    *(0.90, 0.91, 0.92, 0.93, 0.94, 0.95, 0.955, 0.96, 0.965, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 1.0),
)


class EntailmentModel(PairClassifier):
    """Hugging Face classifier of sentence pairs into entailment, contradiction and neutral, named in its config.

    Raises:
        ValueError: if the config does not name the classes.
    """

    def __init__(self, name: str, batch_size: int = 64, device: str | torch.device = "cpu") -> None:
        super().__init__(name, batch_size, device)
        self.order = [_class_of(label, self.class_names, name) for label in LABELS]  # indices of the model's classes

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Return P(entailment), P(contradiction), P(neutral) of (premise, hypothesis) pairs, [N, 3], on the CPU."""
        return super().probabilities(pairs)[:, self.order]

    def matrices(self, summaries: Sequence[Sentences], sources: Sequence[Sentences]) -> list[Tensor]:
        """Return P(label), in the order of `LABELS`, for M source by N summary sentences of each document, [3, M, N].

        Blank sentences are left out. Raises a `ValueError` if the lengths differ or a source is empty.
        """
        if len(summaries) != len(sources):
            raise ValueError(f"{len(summaries)} summaries but {len(sources)} sources")
        summaries = [without_blank(summary) for summary in summaries]
        sources = [without_blank(source) for source in sources]
        for index, source in enumerate(sources):
            if not source:
                raise ValueError(f"source {index} is empty")
        return [matrix.movedim(-1, 0) for matrix in self.pair_matrices(sources, summaries)]


def summac_zs(matrix: Tensor) -> float:
    """Return SummaC-ZS (zero-shot), in [-1, 1], from P(label) of M x N pairs, [3, M, N]; 0 without summary sentences.

    It is the mean over the N summary sentences of their highest P(entailment) minus their highest P(contradiction).
    """
    return float((matrix[0].amax(0) - matrix[1].amax(0)).mean()) if matrix.shape[2] else 0.0


class SummaCConv(nn.Module):
    """SummaC-Conv: a learned kernel over the histogram of entailment probabilities of each summary sentence.

    The probabilities X_1n .. X_Mn that M source sentences entail summary sentence n are counted in bins, a linear layer
    (the paper's convolution over columns n) maps the counts to a number, the numbers are averaged over the summary, and
    a last layer computes the logits of inconsistent and consistent. The edges of the bins ascend from 0 to 1; a bin
    includes its lower edge, the last one both.
    """

    edges: Tensor

    def __init__(self, edges: Sequence[float] = PERCENTILE_EDGES) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges))
        self.kernel = nn.Linear(len(edges) - 1, 1)
        self.output = nn.Linear(1, 2)

    def histogram(self, matrix: Tensor) -> Tensor:
        """Return histograms of each summary sentence's entailment probabilities, [N, bins], from P(label) [3, M, N]."""
        num_bins = len(self.edges) - 1
        entailment = matrix[0].to(self.edges).contiguous()  # [M, N]
        bin_numbers = torch.bucketize(entailment, self.edges, right=True) - 1  # [M, N]
        bin_numbers = bin_numbers.clamp(max=num_bins - 1)  # the last bin includes its upper edge 1
        return nn.functional.one_hot(bin_numbers, num_bins).sum(0).to(self.edges)

    def forward(self, matrices: Sequence[Tensor]) -> Tensor:
        """Return logits of inconsistent and consistent, [B, 2], for pair matrices [3, M, N] of any M and N."""
        no_sentence = self.edges.new_zeros(())  # for a summary without a sentence
        pooled = [self.kernel(self.histogram(m)).mean() if m.shape[2] else no_sentence for m in matrices]
        return self.output(torch.stack(pooled).unsqueeze(-1))

    @torch.no_grad()
    def score(self, matrices: Sequence[Tensor]) -> Tensor:
        """Return P(consistent), [B]; 0 for a summary without sentences."""
        has_sentences = torch.tensor([matrix.shape[2] > 0 for matrix in matrices], device=self.edges.device)
        return self(matrices).softmax(-1)[:, 1] * has_sentences

    @classmethod
    def load(cls, path: str | Path) -> "SummaCConv":
        """Load weights written by `torch.save(conv.state_dict(), path)`, or `summac_conv_vitc_sent_perc_e.bin`.

        In the latter, the authors' model, the last layer reads three copies of the mean, so its three weights are added
        up. Raises a `ValueError` if the file has neither kind of weights.
        """
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if "mlp.weight" in weights:  # the authors' names
            if weights["mlp.weight"].shape[1] != len(PERCENTILE_EDGES) - 1:
                raise ValueError(f"{path}: {weights['mlp.weight'].shape[1]} bins; the authors' percentiles have 23")
            weights = {
                "edges": torch.tensor(PERCENTILE_EDGES),
                "kernel.weight": weights["mlp.weight"],
                "kernel.bias": weights["mlp.bias"],
                "output.weight": weights["layer_final.weight"].sum(1, keepdim=True),
                "output.bias": weights["layer_final.bias"],
            }
        if "edges" not in weights:
            raise ValueError(f"{path} holds no SummaC-Conv weights: {', '.join(list(weights)[:5])}")
        conv = cls(weights["edges"].tolist())
        conv.load_state_dict(weights)
        return conv.eval()


def summac_scores(
    entailment: EntailmentModel, conv: SummaCConv | None, summaries: Sequence[Sentences], sources: Sequence[Sentences]
) -> list[float]:
    """Return SummaC-Conv of each summary, or SummaC-ZS if `conv` is None; 0 for empty summaries."""
    matrices = entailment.matrices(summaries, sources)
    if conv is None:
        return [summac_zs(matrix) for matrix in matrices]
    return conv.score(matrices).tolist() if matrices else []  # `score` cannot stack zero summaries


def _class_of(label: str, class_names: Sequence[str], name: str) -> int:
    """Return the index of the model's class that means `label`; a `ValueError` if no class name says so."""
    for index, class_name in enumerate(class_names):
        words = class_name.lower().replace("_", " ")
        negated = label != "neutral" and NEGATED.search(words)  # such as "not supported"; "not enough info" is neutral
        if not negated and any(synonym in words for synonym in SYNONYMS[label]):
            return index
    names = ", ".join(class_names)
    raise ValueError(f"{name}: which class is {label}? Its config says {names}; rename them in `id2label`")
