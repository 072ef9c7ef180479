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
    """Return rewards of Q prefixes, of lengths `ends` [B, K, Q], of K samples; a `ValueError` if one is not finite."""
    B, K, Q = ends.shape
    repeated = tokens.unsqueeze(2).expand(-1, -1, Q, -1).flatten(1, 2)               # [B, K Q, T]
    texts = module.texts(batch, Samples(repeated, ends.flatten(1, 2)))  # K Q texts for each of B documents
    # each distinct text of a document is scored once: (index of the document, text)
    distinct = [(document, text) for document, prefixes in enumerate(texts) for text in dict.fromkeys(prefixes)]
    references = [[" ".join(sentences) for sentences in of_document] for of_document in batch.references]
    sources = _sources(module, batch) if reward.reads_source else []
    inputs = RewardInputs(
        [batch.ids[document] for document, _ in distinct],
        [text for _, text in distinct],
        [references[document] for document, _ in distinct],
        [sources[document] for document, _ in distinct] if sources else [],
        language=module.language,
    )

    def table(values: Sequence[float]) -> Tensor:  # rewards of distinct texts -> of all, [B, K, Q]
        by_text = dict(zip(distinct, values))
        rewards = [[by_text[document, text] for text in prefixes] for document, prefixes in enumerate(texts)]
        return torch.tensor(rewards, dtype=torch.float64).view(B, K, Q)

    if not isinstance(reward, Mixture):
        return SampleRewards(table(_checked(reward, inputs)), {}, texts)  # {}: only a `Mixture` has parts
    columns = [_checked(part, inputs) for part in reward.rewards]
    parts = {name: table(column) for name, column in zip(reward.names, columns)}
    return SampleRewards(table(reward.combine(columns)), parts, texts)


def reward_values(rewards: SampleRewards, advantage: Advantage) -> dict[str, float]:
    """Return the values that `SelfCritical` logs for a batch, by name; with `greedy`, the first text is greedy."""
    total = rewards.total[..., -1]      # the last prefix is the whole text: [B, K], or [B, 1 + K] with `greedy`
    compared = advantages(total.unsqueeze(-1), "summary", advantage).squeeze(-1)     # of samples, [B, K]
    num_samples = compared.shape[1]
    drawn = total[:, -num_samples:]
    values = {
        "reward": drawn.mean(),
        "reward_baseline": (total[:, 0] if advantage == "greedy" else drawn).mean(),
        "advantage": compared.mean(),
        "advantage_positive": (compared > 0).double().mean(),
        "advantage_rms": compared.square().mean().sqrt(),
        # share of documents whose texts (and their prefixes) have equal rewards, so that there is nothing to learn
        "no_signal": (rewards.total == rewards.total[:, :1]).flatten(1).all(1).double().mean(),
    }
    parts = {name: part[:, -num_samples:, -1] for name, part in rewards.parts.items()}  # of a `Mixture`, [B, K] each
    values |= {f"reward/{name}": part.mean() for name, part in parts.items()}
    if num_samples > 1:
        values["reward_std"] = drawn.std(1).mean()
        values |= {f"reward_std/{name}": part.std(1).mean() for name, part in parts.items()}
    return {name: float(value) for name, value in values.items()}


def sample_rows(ids: Sequence[str], rewards: SampleRewards, first_sample: int) -> list[dict[str, str | float]]:
    """Return rows of `id`, `sample`, `reward` and rewards of a `Mixture`; `first_sample` is 1 to skip a greedy text."""
    Q = rewards.total.shape[-1]  # `total` has the rewards of Q prefixes of each text, [B, K, Q]
    rows = []
    for document, document_id in enumerate(ids):
        texts = rewards.texts[document][Q - 1 :: Q]  # whole texts, the last of Q prefixes each
        for k in range(first_sample, len(texts)):
            parts = {name: float(part[document, k, -1]) for name, part in rewards.parts.items()}
            total = float(rewards.total[document, k, -1])
            rows.append({"id": document_id, "sample": texts[k], "reward": total} | parts)
    return rows


def _sources(module: Generative, batch: Batch) -> list[str]:
    """Return the texts of the documents of a batch, truncated as the model reads them."""
    ids = module.source_ids(batch).cpu().unsqueeze(1)  # as one sample for each document, [B, 1, S]
    full_lengths = torch.full(ids.shape[:2], ids.shape[-1])  # `texts` leaves padding out
    return [text for (text,) in module.texts(batch, Samples(ids, full_lengths))]


def _checked(reward: Reward, inputs: RewardInputs) -> list[float]:
    """Return a reward of each text; a `ValueError` if one is missing or not finite."""
    rewards = reward(inputs)
    subject = f"SelfCritical: the reward {type(reward).__name__}"
    if len(rewards) != len(inputs.texts):
        problem = f"returned {len(rewards)} numbers for {len(inputs.texts)} texts"
        raise ValueError(f"{subject} {problem}; it must return one for each")
    for value, text, document_id in zip(rewards, inputs.texts, inputs.ids):
        if not math.isfinite(value):
            raise ValueError(
                f"{subject} is {value} for {text!r}, written for document {document_id}; "
                "a reward must be finite: fix it, or leave the document out"
            )
    return rewards


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

    def to(self, device: torch.device | str) -> "DrawnSamples":
        """Return a copy whose tensors are on a device."""
        fields = vars(self).items()
        return DrawnSamples(**{name: part.to(device) if isinstance(part, Tensor) else part for name, part in fields})


Waiting = dict[tuple[str, ...], DrawnSamples]  # samples that further updates will use, by the document ids of the batch


def waiting_state(waiting: Waiting) -> list[dict[str, Any]]:
    """Return the samples that further updates will use, of all ranks, as values on the CPU; all ranks must call it."""
    state = []
    for ids, drawn in waiting.items():
        values = {name: float(value) for name, value in drawn.values.items()}  # logged values, some of them tensors
        state.append({"ids": list(ids)} | asdict(drawn.to("cpu")) | {"values": values})
    if not torch.distributed.is_initialized():
        return state
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return [batch for of_rank in states for batch in of_rank]


def load_waiting(state: list[dict[str, Any]]) -> Waiting:
    """Return the samples in the state of a checkpoint, by the ids of their batch."""
    fields = [{name: value for name, value in batch.items() if name != "ids"} for batch in state]
    return {tuple(batch["ids"]): DrawnSamples(**of_batch) for batch, of_batch in zip(state, fields)}
