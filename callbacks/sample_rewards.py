"""Samples of a batch: their rewards, each distinct text scored once, and what several updates share."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from callbacks.policy_gradient import Advantage, advantages
from datamodules.batch import Batch
from lightning_modules.metrics.rewards import Mixture, Reward, RewardInputs
from lightning_modules.summarizer import Generative, Samples


class SampleRewards(NamedTuple):
    """Rewards of prefixes of texts, on the host, double precision."""

    total: Tensor  # reward of each prefix, [B, K, Q]
    parts: dict[str, Tensor]  # the rewards that a `Mixture` adds, by name, [B, K, Q] each; empty for another reward
    texts: list[list[str]]  # the prefixes, K Q for each document


def score_samples(reward: Reward, module: Generative, batch: Batch, tokens: Tensor, ends: Tensor) -> SampleRewards:
    """Return the rewards, on the CPU, of Q prefixes of each sample [B, K, T]; their lengths are `ends`, [B, K, Q].

    Raises:
        ValueError: if a reward is not finite.
    """
    B, K, Q = ends.shape
    repeated = tokens.unsqueeze(2).expand(-1, -1, Q, -1).flatten(1, 2)               # [B, K Q, T]
    texts = module.texts(batch, Samples(repeated, ends.flatten(1, 2)))
    # each distinct text of a document is scored once
    distinct = [(document, text) for document, row in enumerate(texts) for text in dict.fromkeys(row)]
    references = [[" ".join(sentences) for sentences in of_document] for of_document in batch.references]
    sources = _sources(module, batch) if reward.reads_source else []
    inputs = RewardInputs(
        [batch.ids[document] for document, _ in distinct],
        [text for _, text in distinct],
        [references[document] for document, _ in distinct],
        [sources[document] for document, _ in distinct] if sources else [],
        language=module.language,
    )

    def table(values: Sequence[float]) -> Tensor:
        by_text = dict(zip(distinct, values))
        rows = [[by_text[document, text] for text in row] for document, row in enumerate(texts)]
        return torch.tensor(rows, dtype=torch.float64).view(B, K, Q)

    if not isinstance(reward, Mixture):
        return SampleRewards(table(_checked(reward, inputs)), {}, texts)
    columns = [_checked(part, inputs) for part in reward.rewards]
    parts = {name: table(column) for name, column in zip(reward.names, columns)}
    return SampleRewards(table(reward.combine(columns)), parts, texts)


def reward_values(rewards: SampleRewards, advantage: Advantage) -> dict[str, float]:
    """Return what is logged of the rewards of whole texts, by name; with `greedy`, the first text is the greedy one."""
    total = rewards.total[..., -1]                                                   # [B, K]
    compared = advantages(total.unsqueeze(-1), "summary", advantage).squeeze(-1)
    num_samples = compared.shape[1]
    drawn = total[:, -num_samples:]
    values = {
        "reward": drawn.mean(),
        "reward_baseline": (total[:, 0] if advantage == "greedy" else drawn).mean(),
        "advantage": compared.mean(),
        "advantage_positive": (compared > 0).double().mean(),
        "advantage_rms": compared.square().mean().sqrt(),
        "no_signal": (rewards.total == rewards.total[:, :1]).flatten(1).all(1).double().mean(),
    }
    parts = {name: part[:, -num_samples:, -1] for name, part in rewards.parts.items()}         # [B, K] each
    values |= {f"reward/{name}": part.mean() for name, part in parts.items()}
    if num_samples > 1:
        values["reward_std"] = drawn.std(1).mean()
        values |= {f"reward_std/{name}": part.std(1).mean() for name, part in parts.items()}
    return {name: float(value) for name, value in values.items()}


def sample_rows(ids: Sequence[str], rewards: SampleRewards, first_sample: int) -> list[dict[str, str | float]]:
    """Return a row for each sample: `id`, `sample`, `reward`, and each reward of a `Mixture` by name."""
    Q, rows = rewards.total.shape[-1], []
    for document, name in enumerate(ids):
        texts = rewards.texts[document][Q - 1 :: Q]
        for k in range(first_sample, len(texts)):
            values = {part: float(value[document, k, -1]) for part, value in rewards.parts.items()}
            rows.append({"id": name, "sample": texts[k], "reward": float(rewards.total[document, k, -1])} | values)
    return rows


def _sources(module: Generative, batch: Batch) -> list[str]:
    """Return the texts of the documents of a batch, as far as the model reads them."""
    ids = module.source_ids(batch).cpu().unsqueeze(1)                                # [B, 1, S]
    full_lengths = torch.full(ids.shape[:2], ids.shape[-1])
    return [row[0] for row in module.texts(batch, Samples(ids, full_lengths))]


def _checked(reward: Reward, inputs: RewardInputs) -> list[float]:
    """Return a reward of each text; a `ValueError` if one is missing or not finite."""
    values = reward(inputs)
    name = f"SelfCritical: the reward {type(reward).__name__}"
    if len(values) != len(inputs.texts):
        problem = f"returned {len(values)} numbers for {len(inputs.texts)} texts"
        raise ValueError(f"{name} {problem}; it must return one for each")
    row = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
    if row is not None:
        raise ValueError(
            f"{name} is {values[row]} for {inputs.texts[row]!r}, written for document {inputs.ids[row]}; "
            "a reward must be finite: fix it, or leave the document out"
        )
    return values


@dataclass
class DrawnSamples:
    """Samples of a batch, with what is computed once for all updates."""

    tokens: Tensor  # the samples, see `Samples`
    lengths: Tensor
    advantage: Tensor  # of each token, 0 in masked samples, [B, K, T]
    log_probs: Tensor  # log P of the tokens under the model that drew them, [B, K, T]
    unmasked: Tensor  # whether a sample carries a gradient, [B, K, 1]
    reference: Tensor | None  # log P of the tokens under the reference model, [B, K, T]; None without `kl`
    values: dict[str, Tensor | float]  # logged values of the samples, by name
    uses: int = 0  # number of updates so far

    @property
    def samples(self) -> Samples:
        """The samples as `Generative.log_probs` reads them."""
        return Samples(self.tokens, self.lengths)

    def to(self, device: torch.device | str) -> "DrawnSamples":
        """Return a copy on a device."""
        parts = vars(self).items()
        return DrawnSamples(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in parts})


Waiting = dict[tuple[str, ...], DrawnSamples]  # samples with further updates, by the ids of their batch


def waiting_state(waiting: Waiting) -> list[dict[str, Any]]:
    """Return plain values for a checkpoint, those of all ranks, because rank 0 writes the state of every rank."""
    state = [
        {"ids": list(ids)} | asdict(drawn.to("cpu")) | {"values": {k: float(v) for k, v in drawn.values.items()}}
        for ids, drawn in waiting.items()
    ]
    if not torch.distributed.is_initialized():
        return state
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return [row for part in states for row in part]


def load_waiting(state: list[dict[str, Any]]) -> Waiting:
    """Return the samples of a checkpoint, by the ids of their batch."""
    return {tuple(row["ids"]): DrawnSamples(**{k: v for k, v in row.items() if k != "ids"}) for row in state}
