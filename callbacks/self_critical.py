"""Self-critical training: a policy gradient on sampled summaries, with the reward of a baseline."""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from jsonargparse.typing import ClosedUnitInterval, NonNegativeInt, PositiveFloat, PositiveInt
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn

from callbacks.advantages import Baseline, Credit, advantages, gains, prefix_lengths, sentence_numbers
from callbacks.schedules import Scheduled, Switch, ramp
from datamodules.batch import Batch
from datamodules.text.language import language_of
from datamodules.text.words import SENTENCE_ENDS
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.metrics.rewards import Reward, RewardInputs, RougeReward
from lightning_modules.summarizer import Generative, Samples

TERM = "self_critical"


class SelfCritical(Scheduled):
    """Self-critical training: adds a loss term -E[(r(sample) - baseline) log P(sample)], a policy gradient.

    See Rennie et al. 2017 (arXiv 1612.00563) and, for summarization, Paulus et al. 2018 (arXiv 1705.04304).

    The loss becomes gamma self_critical + (1 - gamma) (terms of the model); gamma is a pure function of the optimizer
    step. The term is a sum over the tokens of a sample, including the end symbol, and a mean over samples and
    documents. The `nll` of models is a mean over tokens, so that, compared with a sum over tokens, the same gamma gives
    the likelihood a weight that is smaller by the number of tokens.

    Samples are drawn without gradient and rescored in one teacher-forced pass, both without dropout and with the
    constraints of the model's `decoding`: forbidden tokens (the unknown word, an end before `min_length`, repeated
    n-grams) have no probability, and the rest is renormalised. The distribution is therefore the same in sampling,
    learning and decoding. Beams, length penalty and `prefer_finished`, which choose between whole hypotheses, do not
    apply. Rescoring is started before rewards are computed, so that an accelerator works in parallel.

    Logged as train/: `reward`, `reward_baseline`, `advantage` (means), `advantage_positive` (share), `advantage_rms`,
    `entropy` (estimated from samples, nats per token), `sample_length`, `baseline_length`, `gamma`, and `reward_time`,
    the fraction of the time of training steps spent on rewards so far. With several ranks they are averaged, weighted
    by the number of documents.

    Args:
        reward: reward of a text; ROUGE-L F1 by default.
        samples: number of samples for each document.
        baseline: `greedy`, the reward of the greedy text; or `leave_one_out`, the mean reward of the other samples.
        credit: `summary` assigns the reward of the whole text to every token; `reward_to_go` the gain of its sentence
            and all later ones; `myopic` the gain of its sentence (as Celikyilmaz et al. 2018; biased).
        gamma: final weight of the term.
        start_step: optimizer step at which the term is switched on.
        ramp_steps: number of steps over which gamma increases linearly; 0 switches at once.
        max_length: maximal number of tokens of a sample; by default that of the model's decoding.
        temperature: temperature of sampling and learning; by default that of the model's decoding (usually 1). The
            greedy baseline does not depend on it.
        sentence_ends: words that end a sentence, for `reward_to_go` and `myopic`.
        collapse: threshold of `advantage_rms`, averaged over `window` batches, below which a warning is logged.
        window: see `collapse`.

    Attributes:
        seconds: time spent on rewards, and on whole training steps.

    Raises:
        ValueError: if `leave_one_out` has one sample; in training, if the model is not generative, lacks the documents
            that the reward reads, or has a `min_length` that `max_length` is not above, or a reward is not finite.
    """

    def __init__(
        self,
        reward: Reward | None = None,
        samples: PositiveInt = 1,
        baseline: Baseline = "greedy",
        credit: Credit = "summary",
        gamma: ClosedUnitInterval = 0.9,
        start_step: NonNegativeInt = 0,
        ramp_steps: NonNegativeInt = 0,
        max_length: PositiveInt | None = None,
        temperature: PositiveFloat | None = None,
        sentence_ends: Sequence[str] = SENTENCE_ENDS,
        collapse: float = 1e-3,
        window: PositiveInt = 50,
    ) -> None:
        if baseline == "leave_one_out" and samples < 2:
            raise ValueError(f"SelfCritical: too few samples for the baseline leave_one_out: {samples}")
        self.reward = reward or RougeReward()
        self.samples = samples
        self.baseline = baseline
        self.credit = credit
        self.gamma = float(gamma)  # a checkpoint that is read as weights only holds no number of jsonargparse
        self.start_step = start_step
        self.ramp_steps = ramp_steps
        self.max_length = max_length
        self.temperature = temperature
        self.sentence_ends = tuple(sentence_ends)
        self.collapse = collapse
        self.seconds = {"reward": 0.0, "step": 0.0}
        self._spread: deque[float] = deque(maxlen=window)
        self._ends: Tensor | None = None
        self._began = 0.0

    def gamma_at(self, step: int) -> float:
        """Return gamma at an optimizer step."""
        return ramp(step, self.start_step, self.ramp_steps, self.gamma)

    def switches(self, trainer: Trainer, step: int) -> dict[str, Switch]:
        """Return gamma."""
        return {"gamma": Switch(self.gamma_at(step), self.gamma)}

    # The life of training ----------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Register the loss term, after checks of the model."""
        if stage != "fit":
            return
        needed = ["sample", "log_probs", "texts", *(["source_ids"] if self.reward.reads_source else [])]
        missing = [name for name in needed if not hasattr(pl_module, name)]
        if missing:
            raise ValueError(f"SelfCritical: {type(pl_module).__name__} has no {', '.join(missing)}; see `Generative`")
        self.options(pl_module)  # raises an error if the length limits are incompatible
        self._ends = None  # ids of sentence ends: computed later, because the tokenizer is not loaded yet
        pl_module.extra_terms[TERM] = self.term

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            pl_module.extra_terms.pop(TERM, None)
            pl_module.model_loss_weight = 1.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        gamma = self.gamma_at(trainer.global_step)
        pl_module.loss_weights[TERM], pl_module.model_loss_weight = gamma, 1 - gamma
        pl_module.log("train/gamma", gamma, batch_size=1)
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: Batch, batch_idx: int
    ) -> None:
        if pl_module.loss_weights[TERM] == 0:
            return
        self.seconds["step"] += time.perf_counter() - self._began
        # of rank 0, because it would take a reduction in every step
        pl_module.log("train/reward_time", self.seconds["reward"] / self.seconds["step"], batch_size=1)

    # The term ----------------------------------------------------------------------------------------------------

    def options(self, module: Generative) -> DecodingOptions:
        """Return the options of sampling and rescoring, with the constraints of the model's decoding.

        Raises:
            ValueError: if `max_length` is not above the `min_length` of that decoding.
        """
        greedy, decoding = self.baseline == "greedy", module.decoding
        if self.max_length is not None and self.max_length <= decoding.min_length:
            raise ValueError(
                f"SelfCritical: max_length {self.max_length} is not above model.decoding.min_length "
                f"{decoding.min_length}, which samples obey too; change one of them"
            )
        return replace(
            decoding,
            beam_size=self.samples + greedy,  # when sampling: texts for each document, the greedy one included
            max_length=decoding.max_length if self.max_length is None else self.max_length,
            temperature=decoding.temperature if self.temperature is None else self.temperature,
            sample=True,
            greedy_first=greedy,
        )

    def term(self, module: Generative, batch: Batch) -> Tensor:
        """Return -(1 / K) sum_k sum_t advantage_kt log P(y_kt), the mean over the documents of the batch."""
        options = self.options(module)
        samples = module.sample(batch, options)
        on_host = Samples(samples.tokens.cpu(), samples.lengths.cpu())
        width = int(on_host.lengths.max())
        on_host = on_host._replace(tokens=on_host.tokens[..., :width])
        first_sample = int(self.baseline == "greedy")  # the greedy text stands before the samples
        drawn = Samples(samples.tokens[:, first_sample:, :width].contiguous(), samples.lengths[:, first_sample:])
        with without_dropout(module):
            log_probs = module.log_probs(batch, drawn, options)                      # [B, K, T]
        advantage = self.advantages(module, batch, on_host).to(log_probs)            # [B, K, T]
        real = torch.arange(width, device=log_probs.device) < drawn.lengths.unsqueeze(-1)
        log_probs = log_probs.masked_fill(~real, 0)
        self._log_samples(module, on_host, log_probs.detach())
        return -(advantage * log_probs).sum(-1).mean()

    def advantages(self, module: Generative, batch: Batch, samples: Samples) -> Tensor:
        """Return the advantage of every token of the samples, [B, K, T], on the host and without gradient.

        Args:
            batch: the batch.
            samples: samples on the host; with the baseline `greedy`, the first is the greedy text.
        """
        started = time.perf_counter()
        tokens, lengths = samples
        if self.credit == "summary":
            numbers, ends = torch.zeros_like(tokens), lengths.unsqueeze(-1)          # one unit, the whole text
        else:
            if self._ends is None:
                self._ends = self._end_ids(module)
            numbers = sentence_numbers(tokens, self._ends)
            ends = prefix_lengths(numbers, lengths)                                  # [B, K, Q]
        rewards = self.rewards(module, batch, tokens, ends)                          # [B, K, Q]
        first_sample = int(self.baseline == "greedy")
        by_sentence = advantages(gains(rewards), self.credit, self.baseline)
        self.seconds["reward"] += time.perf_counter() - started
        self._log_rewards(module, rewards[..., -1])
        # Each token gets the advantage of its sentence.
        return by_sentence.gather(-1, numbers[:, first_sample:].clamp_max(by_sentence.shape[-1] - 1))

    def _end_ids(self, module: Generative) -> Tensor:
        """Return the ids of tokens that end a sentence."""
        marks = tuple(self.sentence_ends)
        if marks == SENTENCE_ENDS:
            marks = language_of(module.language).sentence_ends
        ends = module.tokenizer.end_ids(marks)
        if not ends:
            raise ValueError(
                f"SelfCritical: no token ends with one of {' '.join(marks)}, so there are no sentences to "
                f"credit; give sentence_ends, or credit summary instead of {self.credit}"
            )
        return torch.tensor(ends, dtype=torch.long)

    def rewards(self, module: Generative, batch: Batch, tokens: Tensor, ends: Tensor) -> Tensor:
        """Return the rewards of prefixes of texts; each distinct text of a document is scored once.

        Args:
            tokens: [B, K, T].
            ends: lengths of the prefixes, [B, K, Q].

        Returns:
            [B, K, Q], double precision.

        Raises:
            ValueError: if a reward is not finite.
        """
        B, K, Q = ends.shape
        repeated = tokens.unsqueeze(2).expand(-1, -1, Q, -1).flatten(1, 2)           # [B, K Q, T]
        texts = module.texts(batch, Samples(repeated, ends.flatten(1, 2)))
        # What a reward reads has a row for each distinct text of a document.
        distinct = [(document, text) for document, row in enumerate(texts) for text in dict.fromkeys(row)]
        references = [[" ".join(reference) for reference in document] for document in batch.references]
        sources = self._sources(module, batch) if self.reward.reads_source else []
        inputs = RewardInputs(
            [batch.ids[document] for document, _ in distinct],
            [text for _, text in distinct],
            [references[document] for document, _ in distinct],
            [sources[document] for document, _ in distinct] if sources else [],
            language=module.language,
        )
        values = self.reward(inputs)
        if len(values) != len(distinct) or not all(map(math.isfinite, values)):
            raise ValueError(_describe_invalid(self.reward, inputs, values))
        table = dict(zip(distinct, values))
        by_text = [[table[document, text] for text in row] for document, row in enumerate(texts)]
        return torch.tensor(by_text, dtype=torch.float64).view(B, K, Q)

    def _sources(self, module: Generative, batch: Batch) -> list[str]:
        ids = module.source_ids(batch).cpu().unsqueeze(1)                            # [B, 1, S]
        full_lengths = torch.full(ids.shape[:2], ids.shape[-1])
        return [row[0] for row in module.texts(batch, Samples(ids, full_lengths))]

    # Logging -----------------------------------------------------------------------------------------------------

    def _log_rewards(self, module: Generative, rewards: Tensor) -> None:
        """Log rewards of whole texts [B, K]; with the baseline `greedy`, the first is that of the greedy text."""
        advantage = advantages(rewards.unsqueeze(-1), "summary", self.baseline).squeeze(-1)
        drawn = rewards[:, -advantage.shape[1] :]
        spread = float(advantage.square().mean().sqrt())
        values = {
            "reward": drawn.mean(),
            "reward_baseline": (drawn - advantage).mean(),
            "advantage": advantage.mean(),
            "advantage_positive": (advantage > 0).double().mean(),
            "advantage_rms": spread,
        }
        module.step_values |= {name: float(value) for name, value in values.items()}
        # Warn once all advantages of a whole window are close to zero.
        self._spread.append(spread)
        mean = sum(self._spread) / len(self._spread)
        if len(self._spread) == self._spread.maxlen and mean < self.collapse:
            self._spread.clear()
            rank_zero_warn(
                f"SelfCritical: samples are no better or worse than the baseline any more (advantages of {mean:.2g} on "
                "average): there is nothing left to learn; the distribution may have become too peaked"
            )

    def _log_samples(self, module: Generative, samples: Samples, log_probs: Tensor) -> None:
        lengths = samples.lengths.double()
        drawn = lengths[:, -log_probs.shape[1] :]
        values = {"sample_length": float(drawn.mean()), "entropy": -log_probs.sum() / float(drawn.sum())}
        if self.baseline == "greedy":
            values["baseline_length"] = float(lengths[:, 0].mean())
        module.step_values |= values


@contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Disable dropout while gradients are computed; the previous modes are restored.

    Modules are set to eval mode, except those that need training mode, which get a dropout of 0: cuDNN computes no
    gradient of recurrent layers in eval mode, and `transformers` ignores activation checkpointing there.
    """
    modes = [(part, part.training) for part in module.modules()]
    stay = [p for p in module.modules() if isinstance(p, nn.RNNBase) or getattr(p, "gradient_checkpointing", False)]
    shares = [(p, *item) for p in stay for item in vars(p).items() if "drop" in item[0] and isinstance(item[1], float)]
    module.eval()
    for part in stay:
        part.training = True
    for part, name, _ in shares:
        setattr(part, name, 0.0)
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        for part, name, share in shares:
            setattr(part, name, share)


def _describe_invalid(reward: Reward, inputs: RewardInputs, values: Sequence[float]) -> str:
    """Return an error message about invalid reward values."""
    name = f"SelfCritical: the reward {type(reward).__name__}"
    if len(values) != len(inputs.texts):
        return f"{name} returned {len(values)} numbers for {len(inputs.texts)} texts; it must return one for each"
    row = next(i for i, value in enumerate(values) if not math.isfinite(value))
    return (
        f"{name} is {values[row]} for {inputs.texts[row]!r}, written for document {inputs.ids[row]}; "
        "a reward must be finite: fix it, or leave the document out"
    )
