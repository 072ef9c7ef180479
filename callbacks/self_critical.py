"""Self-critical training: a policy gradient on sampled summaries, whose rewards are compared with each other."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor

from callbacks.policy_gradient import (
    Advantage,
    Credit,
    advantages,
    clipped_gain,
    divergence,
    gains,
    prefix_lengths,
    sentence_numbers,
)
from callbacks.reference_model import ReferenceModel
from callbacks.sample_rewards import (
    DrawnSamples,
    SampleRewards,
    Waiting,
    load_waiting,
    reward_values,
    sample_rows,
    score_samples,
    waiting_state,
)
from callbacks.schedules import Scheduled, Switch, ramp
from datamodules.batch import Batch
from datamodules.text.language import language_of
from datamodules.text.words import SENTENCE_ENDS
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rewards import Reward, RougeReward
from lightning_modules.networks.dropout import without_dropout
from lightning_modules.summarizer import Generative, Samples

TERM = "self_critical"
NO_SIGNAL = 0.95  # share of documents with equal rewards, averaged over a window, from which on a warning is logged


class SelfCritical(Scheduled):
    """Self-critical training: adds a loss term -E[A log P(sample)], a policy gradient with advantages A of rewards.

    See Rennie et al. 2017 (arXiv 1612.00563) and, for summarization, Paulus et al. 2018 (arXiv 1705.04304). RLOO, GRPO
    and Dr. GRPO are values of `advantage`, `updates` and `kl`: see docs/coming_from/trl.md.

    The loss becomes gamma self_critical + (1 - gamma) (terms of the model); gamma is a pure function of the optimizer
    step. The term is a sum over the tokens of a sample, including the end symbol, and a mean over samples and
    documents. The `nll` of models is a mean over tokens instead. With the same gamma, it therefore weighs less than a
    sum over tokens would, by a factor of the number of tokens.

    Samples are drawn without gradient and rescored in one teacher-forced pass (a pointer-generator keeps the steps of
    sampling instead, see `sample_with_log_probs`), both without dropout and with the constraints of the model's
    `decoding`: forbidden tokens (the unknown word, an end before `min_length`, repeated n-grams) have no probability,
    and the rest is renormalised. The distribution is therefore the same in sampling, learning and decoding. Beams,
    length penalty and `prefer_finished`, which choose between whole hypotheses, do not apply. Rescoring is started
    before rewards are computed, so that an accelerator works in parallel.

    With `updates` above 1 the DataModule delivers each batch several times. Samples, rewards and advantages are those
    of the first time, and the term is -E[min(rho A, clamp(rho) A)] with rho = P / P_old (`clipped_gain`). Checkpoints
    contain the samples that further updates will use, so that a resumed run continues exactly.

    Logged as train/: `reward`, `reward_baseline`, `advantage` (means), `advantage_positive` (share), `advantage_rms`,
    `reward_std` (standard deviation over the samples of a document), `no_signal` (share of documents whose texts have
    equal rewards), `truncated` (share of samples), `entropy` (estimated from samples, nats per token), `sample_length`,
    `baseline_length`, `kl` (nats per sample), `clipped` (share of tokens), `gamma`, and `reward_time`, the fraction of
    the time of training steps spent on rewards so far. For each reward of a `Mixture`, also `reward/NAME` and
    `reward_std/NAME`. With several ranks they are averaged, weighted by the number of documents.

    Args:
        reward: reward of a text; ROUGE-L F1 by default.
        samples: number of samples for each document.
        advantage: what the reward of a sample is compared with: `greedy`, the reward of the greedy text;
            `leave_one_out`, the mean of the other samples; `group_mean`, the mean of all samples; `group`, the same,
            divided by their standard deviation. See `advantages`.
        credit: `summary` assigns the reward of the whole text to every token; `reward_to_go` the gain in reward
            by its sentence and all later ones; `myopic` that by its sentence alone (Celikyilmaz et al. 2018; biased).
        gamma: final weight of the term.
        start_step: optimizer step at which the term is switched on.
        ramp_steps: number of steps over which gamma increases linearly; 0 switches at once.
        kl: weight, within the term, of the divergence from the model at `start_step`, summed over the tokens of a
            sample (`divergence`).
        mask_truncated: whether samples that end at `max_length` without an end symbol carry no gradient. Their rewards
            count for the advantages of others.
        updates: number of updates from the samples of a batch.
        clip: limits of rho = P / P_old below and above 1, beyond which there is no gradient; for `updates` above 1.
        max_length: maximal number of tokens of a sample; by default that of the model's decoding.
        temperature: temperature of sampling and learning; by default that of the model's decoding (usually 1). The
            greedy text does not depend on it.
        sentence_ends: words that end a sentence, for `reward_to_go` and `myopic`.
        window: number of batches over which `no_signal` is averaged for a warning.

    Raises:
        ValueError: if another advantage than `greedy` has one sample; in training, if the model is not generative,
            lacks `source_ids` for a reward that reads documents, or has a `min_length` that `max_length` is not above,
            the DataModule does not repeat batches, or a reward is not finite.
        UserError: in training, if a resumed run with `kl` lacks the model that it began with.
    """

    def __init__(
        self,
        reward: Reward | None = None,
        samples: PositiveInt = 1,
        advantage: Advantage = "greedy",
        credit: Credit = "summary",
        gamma: ClosedUnitInterval = 0.9,
        start_step: NonNegativeInt = 0,
        ramp_steps: NonNegativeInt = 0,
        kl: NonNegativeFloat = 0.0,
        mask_truncated: bool = False,
        updates: PositiveInt = 1,
        clip: tuple[PositiveFloat, PositiveFloat] = (0.2, 0.2),
        max_length: PositiveInt | None = None,
        temperature: PositiveFloat | None = None,
        sentence_ends: Sequence[str] = SENTENCE_ENDS,
        window: PositiveInt = 50,
    ) -> None:
        if advantage != "greedy" and samples < 2:
            raise ValueError(f"SelfCritical: too few samples for the advantage {advantage}: {samples}; give at least 2")
        self.reward = reward or RougeReward()
        self.samples = samples
        self.max_length = max_length
        self.temperature = temperature
        self.advantage = advantage
        self.credit = credit
        self.sentence_ends = tuple(sentence_ends)
        self.gamma = float(gamma)  # plain, since `weights_only` loads no jsonargparse type from checkpoints
        self.start_step = start_step
        self.ramp_steps = ramp_steps
        self.kl = kl
        self.mask_truncated = mask_truncated
        self.updates = updates
        self.clip = clip
        self.seconds = {"reward": 0.0, "step": 0.0}  # time spent so far on rewards, and on whole training steps
        self.reference = ReferenceModel()  # the model at `start_step`, which `kl` measures the divergence from
        self._last: tuple[list[str], SampleRewards] | None = None  # ids and rewards of the latest batch
        self._values: dict[str, Tensor | float] = {}  # logged values of the samples that were drawn last
        self._waiting: Waiting = {}  # samples that further updates will use, by the document ids of the batch
        self._no_signal: deque[float] = deque(maxlen=window)  # share of documents with equal rewards, by batch
        self._ends: Tensor | None = None  # ids of tokens that end a sentence
        self._began = 0.0  # time at which the training step began

    @property
    def last_samples(self) -> list[dict[str, str | float]]:
        """The samples of the latest batch with their rewards, see `sample_rows`; empty before the first batch."""
        first_sample = int(self.advantage == "greedy")  # 1 if a greedy text stands before the samples
        return sample_rows(*self._last, first_sample=first_sample) if self._last else []

    def gamma_at(self, step: int) -> float:
        """Return gamma, the weight of the self-critical term in the loss, at an optimizer step."""
        return ramp(step, self.start_step, self.ramp_steps, self.gamma)

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return gamma at an optimizer step and its final value, see `Scheduled`."""
        return {"gamma": Switch(self.gamma_at(step), self.gamma)}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Register the loss term and repeat batches for several updates, after checks of the model."""
        if stage != "fit":
            return
        needed = ["sample", "log_probs", "texts", *(["source_ids"] if self.reward.reads_source else [])]
        missing = [name for name in needed if not hasattr(pl_module, name)]
        if missing:
            raise ValueError(f"SelfCritical: {type(pl_module).__name__} has no {', '.join(missing)}; see `Generative`")
        self.options(pl_module)  # raises an error if the length limits are incompatible
        if self.updates > 1:
            if not hasattr(trainer.datamodule, "repeats"):
                name = type(trainer.datamodule).__name__
                raise ValueError(f"SelfCritical: {name} does not repeat batches by `repeats`, so updates must be 1")
            trainer.datamodule.repeats = self.updates
        # reset the state of an earlier `fit` with this callback
        self._ends = None  # ids of sentence ends: computed later, because the tokenizer is not loaded yet
        self.reference.module = None
        self._waiting = {}
        pl_module.extra_terms[TERM] = self.term

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Undo the changes of `setup` to the model and the DataModule, which may be used further."""
        if stage == "fit":  # `setup` changes nothing in other stages
            pl_module.extra_terms.pop(TERM, None)  # missing if `setup` raised an error
            pl_module.model_loss_weight = 1.0
            self.reference.module = None  # frees its memory
            if self.updates > 1:
                trainer.datamodule.repeats = 1

    def state_dict(self) -> dict[str, Any]:
        """Return the samples that have further updates, so that a resumed run continues exactly."""
        return {"waiting": waiting_state(self._waiting)} if self.updates > 1 else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the samples that have further updates; batches without any, or of other ranks, get new samples."""
        self._waiting = load_waiting(state_dict.get("waiting", []))  # missing with one update

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget samples of an epoch that ended between the updates of a batch."""
        self._waiting = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        """Set the weights of the loss for this step, and copy the reference model when the term is switched on."""
        gamma = self.gamma_at(trainer.global_step)
        pl_module.loss_weights[TERM] = gamma
        pl_module.model_loss_weight = 1 - gamma
        pl_module.log("train/gamma", gamma, batch_size=1)
        if self.kl and gamma and self.reference.module is None:  # gamma is 0 until `start_step`
            self.reference.begin(trainer, pl_module, self.start_step)
        self._began = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        if pl_module.loss_weights[TERM] == 0:  # the term is not switched on yet, so no rewards were computed
            return
        self.seconds["step"] += time.perf_counter() - self._began
        # the fraction on rank 0; a mean over ranks would need a reduction in every step
        pl_module.log("train/reward_time", self.seconds["reward"] / self.seconds["step"], batch_size=1)

    def options(self, module: Generative) -> DecodingOptions:
        """Return the options of sampling and rescoring; a `ValueError` if the length limits are incompatible."""
        with_greedy = self.advantage == "greedy"
        decoding = module.decoding
        if self.max_length is not None and self.max_length <= decoding.min_length:
            raise ValueError(
                f"SelfCritical: max_length {self.max_length} is not above model.decoding.min_length "
                f"{decoding.min_length}, which samples obey too; change one of them"
            )
        return replace(
            decoding,
            beam_size=self.samples + with_greedy,  # when sampling: number of texts per document, with the greedy one
            max_length=decoding.max_length if self.max_length is None else self.max_length,
            temperature=decoding.temperature if self.temperature is None else self.temperature,
            sample=True,
            greedy_first=with_greedy,
        )

    def term(self, module: Generative, batch: Batch) -> Tensor:
        """Return the term -(1 / K) sum_k sum_t (advantage_kt log P(y_kt) - kl * divergence_kt), mean over documents.

        The first update of a batch of B documents draws K samples, the next ones use them again, by `clipped_gain`.
        """
        options = self.options(module)
        ids = tuple(batch.ids)
        if ids in self._waiting:
            drawn = self._waiting.pop(ids).to(next(module.parameters()).device)  # on the CPU after resuming
            samples = Samples(drawn.tokens, drawn.lengths)
            log_probs = self._log_probs(module, batch, samples, options)             # [B, K, T]
        else:
            drawn, log_probs = self._draw(module, batch, options)
        drawn.uses += 1
        if drawn.uses < self.updates:
            self._waiting[ids] = drawn
        module.step_values |= drawn.values  # logged by the training step
        gain = drawn.advantage * log_probs                                           # [B, K, T]
        if self.updates > 1:
            gain = clipped_gain(log_probs, drawn.log_probs, drawn.advantage, self.clip)
            unclipped = (log_probs.detach() - drawn.log_probs).exp() * drawn.advantage  # rho A, see `clipped_gain`
            module.step_values["clipped"] = (gain < unclipped).sum() / drawn.lengths.sum()  # share of tokens
        if self.kl:  # `drawn.reference`: log P of the tokens under the reference model
            kl_estimate = divergence(log_probs, drawn.reference)                     # [B, K, T], 0 at padding
            module.step_values["kl"] = kl_estimate.detach().sum(-1).mean()
            gain = gain - self.kl * kl_estimate * drawn.unmasked  # 0 in samples that `mask_truncated` masks
        return -gain.sum(-1).mean()

    def _log_probs(self, module: Generative, batch: Batch, samples: Samples, options: DecodingOptions) -> Tensor:
        """Return log P of the tokens of samples with gradient, without dropout, 0 at padding, [B, K, T]."""
        with without_dropout(module):
            return module.log_probs(batch, samples, options)

    def _draw(self, module: Generative, batch: Batch, options: DecodingOptions) -> tuple[DrawnSamples, Tensor]:
        """Draw samples, and return them with advantages and values to log, and their log P with gradient, [B, K, T]."""
        draw = getattr(module, "sample_with_log_probs", None)  # faster; log P is None if sampling could not keep it
        samples, log_probs = draw(batch, options) if draw else (module.sample(batch, options), None)
        on_host = Samples(samples.tokens.cpu(), samples.lengths.cpu())  # rewards are computed there
        width = int(on_host.lengths.max())                                           # T
        on_host = on_host._replace(tokens=on_host.tokens[..., :width])
        first_sample = int(self.advantage == "greedy")  # 1 if a greedy text stands before the samples
        drawn = Samples(samples.tokens[:, first_sample:, :width].contiguous(), samples.lengths[:, first_sample:])
        # log-probabilities are started before rewards are computed on the CPU, so that an accelerator works in parallel
        reference = self.reference.log_probs(batch, drawn, options) if self.kl else None
        if log_probs is None:
            log_probs = self._log_probs(module, batch, drawn, options)               # [B, K, T]
        advantage = self.advantages(module, batch, on_host)                          # [B, K, T]
        # padding carries no gradient; nor, with `mask_truncated`, does a sample without an end symbol
        tokens, lengths = (part[:, first_sample:] for part in on_host)
        last = lengths.unsqueeze(-1) - 1                                             # [B, K, 1]
        truncated = tokens.gather(-1, last) != module.tokenizer.stop
        unmasked = ~truncated if self.mask_truncated else torch.ones_like(truncated)
        advantage = advantage.masked_fill(~unmasked | (torch.arange(width) > last), 0)  # padding is after `last`
        self._values |= {  # added to the values of rewards, which `self.advantages` has set
            "truncated": float(truncated.double().mean()),
            "sample_length": float(lengths.double().mean()),
            "entropy": -log_probs.detach().sum() / float(lengths.sum()),  # log P is 0 at padding
        }
        if first_sample:
            self._values["baseline_length"] = float(on_host.lengths[:, 0].double().mean())
        return DrawnSamples(
            *drawn,
            advantage=advantage.to(log_probs),
            log_probs=log_probs.detach(),
            unmasked=unmasked.to(log_probs.device),
            reference=reference,
            values=self._values,
        ), log_probs

    def advantages(self, module: Generative, batch: Batch, samples: Samples) -> Tensor:
        """Return the advantage of every token, [B, K, T], without gradient; it and the samples are on the CPU.

        With `greedy`, samples are 1 + K texts, the greedy one first, which has no advantage. Logged values are updated.
        """
        started = time.perf_counter()
        tokens, lengths = samples
        if self.credit == "summary":  # the whole text counts as one sentence, Q = 1
            numbers = torch.zeros_like(tokens)
            ends = lengths.unsqueeze(-1)                                             # [B, K, 1]
        else:
            if self._ends is None:
                self._ends = self._end_ids(module)
            numbers = sentence_numbers(tokens, self._ends)  # index of the sentence of each token, [B, K, T]
            ends = prefix_lengths(numbers, lengths)                                  # of up to Q sentences, [B, K, Q]
        rewards = score_samples(self.reward, module, batch, tokens, ends)  # `total`: of Q prefixes
        first_sample = int(self.advantage == "greedy")
        by_sentence = advantages(gains(rewards.total), self.credit, self.advantage)  # [B, K, Q]
        self.seconds["reward"] += time.perf_counter() - started
        self._values = reward_values(rewards, self.advantage)
        self._warn_without_signal(self._values["no_signal"])
        self._last = batch.ids, rewards  # read by `last_samples`
        # each token gets the advantage of its sentence; Q is the most of any text, so only padding has Q or more
        return by_sentence.gather(-1, numbers[:, first_sample:].clamp_max(by_sentence.shape[-1] - 1))

    def _end_ids(self, module: Generative) -> Tensor:
        """Return the ids of tokens that end a sentence, [n]; a `ValueError` if the tokenizer has none."""
        marks = self.sentence_ends
        if marks == SENTENCE_ENDS:  # the default stands for the marks of the model's language
            marks = language_of(module.language).sentence_ends
        ends = module.tokenizer.end_ids(marks)
        if not ends:
            raise ValueError(
                f"SelfCritical: no token ends with one of {' '.join(marks)}, so there are no sentences to "
                f"credit; give sentence_ends, or credit summary instead of {self.credit}"
            )
        return torch.tensor(ends, dtype=torch.long)

    def _warn_without_signal(self, no_signal: float) -> None:
        """Warn if, on average over the last `window` batches, at least `NO_SIGNAL` of documents have equal rewards."""
        self._no_signal.append(no_signal)
        mean = sum(self._no_signal) / len(self._no_signal)
        if len(self._no_signal) == self._no_signal.maxlen and mean >= NO_SIGNAL:
            self._no_signal.clear()  # the next warning comes after another `window` batches at the earliest
            rank_zero_warn(
                f"SelfCritical: samples are no better or worse than the baseline in {mean:.0%} of documents "
                "(train/no_signal): there is nothing to learn from; the distribution may have become too peaked"
            )
