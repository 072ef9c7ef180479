"""Speed and memory of the pointer-generator compared with the usual implementation.

    python -m benchmarks.pointer_generator

In training, the usual implementation computes the distribution over the extended vocabulary, [B, V + OOV], at every
decoder step, and keeps all of them and the hidden layers of attention for autograd. In decoding, it searches one
document at a time, with the beam as the batch, and selects continuations from that distribution. It has the same
parameters and, as tests/benchmarks/test_naive_models.py shows, the same results.

Times are medians over repetitions that alternate between the two implementations, so that a busy machine slows both; a
training step is loss, gradients, clipping and Adagrad. Memory is measured in a separate process for each
implementation: the peak resident set after two training steps, minus the peak before them, after model and batch were
created.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.measuring import (
    Seconds,
    alternate,
    in_new_process,
    machine,
    memory_of_steps,
    options,
    print_table,
    training_step,
    word_rows,
)
from datamodules.corpora.texts import Texts
from datamodules.pointer_generator import PointerGeneratorBatch, PointerGeneratorData
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.pointer_generator.module import PointerGenerator
from lightning_modules.pointer_generator.network import Memory, PointerGeneratorNetwork

V, B, S, T, BEAM = 50_000, 8, 400, 100, 4  # vocabulary, documents, words of a source, tokens of a target, beam size
DECODED = (B, 32)  # numbers of documents in a batch


class NaiveDecoder:
    """Decoder that follows the equations of the paper step by step; `size` is V + OOV, and `gate` scales coverage."""

    def __init__(
        self, network: PointerGeneratorNetwork, memory: Memory, source: Tensor, size: int, gate: float
    ) -> None:
        self.network, self.memory, self.source, self.size, self.gate = network, memory, source, size, gate

    def step(self, words: Tensor, hidden: Tensor, cell: Tensor, context: Tensor, coverage: Tensor):
        """Run one step for N rows.

        Args:
            words: the previous word of each row, [N].
            hidden, cell, context, coverage: [N, H], [N, H], [N, 2H], [N, S].

        Returns:
            The distribution over the extended vocabulary [N, size], the attention [N, S], hidden, cell and context.
        """
        net = self.network
        fed = torch.where(words < net.output.out_features, words, UNK)  # out-of-vocabulary words have no embedding
        x = net.feed_word(net.embedding(fed)) + net.feed_context(context)                        # [N, E]
        hidden, cell = net.decoder(x, (hidden, cell))
        query = net.attention.query(torch.cat([cell, hidden], 1)).unsqueeze(1)                   # [N, 1, A]
        inner = self.memory.projected + query                                                    # [N, S, A]
        if net.attention.coverage is not None and self.gate:
            inner = inner + self.gate * coverage.unsqueeze(2) * net.attention.coverage
        energy = (torch.tanh(inner) * net.attention.score).sum(2)                                # [N, S], equation 11
        attention = torch.softmax(energy.masked_fill(~self.memory.mask, float("-inf")), 1)
        context = torch.bmm(attention.unsqueeze(1), self.memory.states).squeeze(1)               # [N, 2H]
        logits = net.output(net.combine(torch.cat([hidden, context], 1)))
        vocabulary = torch.softmax(logits, 1)                                                    # [N, V]
        if net.pointer is None:
            return vocabulary, attention, hidden, cell, context
        p_gen = torch.sigmoid(net.pointer(torch.cat([context, cell, hidden, x], 1)))             # [N, 1], equation 8
        extra = vocabulary.new_zeros(len(words), self.size - vocabulary.shape[1])
        extended = torch.cat([p_gen * vocabulary, extra], 1)                                     # [N, V + OOV]
        extended = extended.scatter_add(1, self.source, (1 - p_gen) * attention)                 # equation 9
        return extended, attention, hidden, cell, context


def extended_size(batch: PointerGeneratorBatch, vocab_size: int) -> int:
    """Return V plus the largest number of OOV words of a document in the batch."""
    return max(vocab_size, int(batch.source_extended.max()) + 1)


def naive_loss(model: PointerGenerator, batch: PointerGeneratorBatch) -> Tensor:
    """Return the loss of the paper: the mean over words of -log P(y_t) + lambda covloss_t, then over documents."""
    memory, state = model.network.encode(batch.source, batch.lengths)
    size = extended_size(batch, model.vocab_size)
    decoder = NaiveDecoder(model.network, memory, batch.source_extended, size, model.coverage_gate)
    hidden, cell, context, coverage = (part.squeeze(1) for part in state)
    losses = []
    for words, gold in zip(batch.target_input.unbind(1), batch.target.unbind(1)):
        extended, attention, hidden, cell, context = decoder.step(words, hidden, cell, context, coverage)
        probability = extended.gather(1, gold.unsqueeze(1)).squeeze(1)                           # [B]
        loss = -torch.log(probability + 1e-12)  # finite if the probability is 0
        if model.network.attention.coverage is not None:
            loss = loss + model.loss_weights["coverage"] * torch.minimum(attention, coverage).sum(1)  # equation 13
        coverage = coverage + attention
        losses.append(loss * (gold != PAD))
    return (torch.stack(losses, 1).sum(1) / batch.target_lengths).mean()


@torch.no_grad()
def naive_search(
    model: PointerGenerator, batch: PointerGeneratorBatch, index: int, options: DecodingOptions
) -> list[int]:
    """Run a beam search for document `index` of a batch; return the ids with the highest mean log-probability."""
    network, K, length = model.network, options.beam_size, int(batch.lengths[index])
    memory, state = network.encode(batch.source[index : index + 1, :length], batch.lengths[index : index + 1])
    source = batch.source_extended[index : index + 1, :length]
    size = max(model.vocab_size, int(source.max()) + 1)
    hidden, cell, context, coverage = (part[0] for part in state)  # [1, ..]: one hypothesis at first
    beams: list[tuple[list[int], float]] = [([START], 0.0)]  # ids of each hypothesis, and its log-probability
    finished: list[tuple[list[int], float]] = []  # ids, and the mean log-probability
    for t in range(options.max_length):
        n = len(beams)
        widened = Memory(*(part.expand(n, *part.shape[1:]) for part in memory))
        decoder = NaiveDecoder(network, widened, source.expand(n, -1), size, model.coverage_gate)
        words = torch.tensor([tokens[-1] for tokens, _ in beams])
        extended, attention, hidden, cell, context = decoder.step(words, hidden, cell, context, coverage)
        coverage = coverage + attention
        extended[:, [PAD, UNK, START] + ([STOP] if t < options.min_length else [])] = 0  # symbols not to be written
        log_probs, ids = torch.log(extended).topk(2 * K, dim=1)  # K continue even if the other K end
        candidates = [
            (total + log_prob, row, word)
            for row, (_, total) in enumerate(beams)
            for log_prob, word in zip(log_probs[row].tolist(), ids[row].tolist())
        ]
        continued: list[tuple[float, int, int]] = []
        for rank, (total, row, word) in enumerate(sorted(candidates, reverse=True)[: 2 * K]):
            if rank < K and (word == STOP or t + 1 == options.max_length):
                finished.append(([*beams[row][0][1:], word], total / (t + 1)))
            elif word != STOP and len(continued) < K:
                continued.append((total, row, word))
        if len(finished) >= K or not continued:
            break
        rows = torch.tensor([row for _, row, _ in continued])
        beams = [([*beams[row][0], word], total) for total, row, word in continued]
        hidden, cell, context, coverage = hidden[rows], cell[rows], context[rows], coverage[rows]
    return max(finished, key=lambda hypothesis: hypothesis[1])[0]


def make_model() -> PointerGenerator:
    """Return an untrained model with coverage and the sizes of the paper."""
    torch.manual_seed(0)
    model = PointerGenerator(V, decoding=DecodingOptions(BEAM, min_length=T - 1, max_length=T))
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(V - 4)]))
    return model


def make_batch(documents: int = B) -> PointerGeneratorBatch:
    """Return documents of S words with summaries of T tokens, see `word_rows`."""
    data = PointerGeneratorData(Texts([]), vocab_size=V, max_source=S, max_target=T)  # only collates
    return data.collate(word_rows(documents, V, S, T))


def our_loss(model: PointerGenerator, batch: PointerGeneratorBatch) -> Tensor:
    """Return the loss of a training step of `PointerGenerator`: likelihood and coverage."""
    terms = model.loss_terms(batch)
    return terms["nll"] + model.loss_weights["coverage"] * terms["coverage"]


LOSSES: dict[str, Callable[[PointerGenerator, PointerGeneratorBatch], Tensor]] = {"ours": our_loss, "naive": naive_loss}


def trainer(loss: Callable[[PointerGenerator, PointerGeneratorBatch], Tensor]) -> Callable[[], None]:
    """Return a training step on a new model."""
    model, batch = make_model(), make_batch()
    return training_step(model, lambda: loss(model, batch))


def searches(documents: int, repetitions: int) -> dict[str, Seconds]:
    """Return the seconds of beam search in a batch of documents, and one document at a time."""
    model, batch = make_model(), make_batch(documents)

    def one_at_a_time() -> None:
        for i in range(documents):
            naive_search(model, batch, i, model.decoding)

    return alternate({"ours": partial(model.generate, batch, model.decoding), "naive": one_at_a_time}, repetitions)


def training_memory(way: str) -> float:
    """Return the megabytes that training needs besides model and batch; to be called in a new process."""
    return memory_of_steps(trainer(LOSSES[way]))


def rates(name: str, seconds: dict[str, Seconds], amount: int, unit: str) -> list[str]:
    """Return a row of the table: rates (`amount` of `unit` per median second), and their ratio with its range."""
    ours, naive = (seconds[way].medians()[0] for way in ("ours", "naive"))
    pairs = [slow / fast for fast, slow in zip(seconds["ours"].wall, seconds["naive"].wall)]
    ratio = f"{naive / ours:.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
    return [name, unit, f"{amount / ours:,.3g}", f"{amount / naive:,.3g}", ratio]


def main() -> None:
    arguments = options(__doc__, repetitions=5).parse_args()
    # memory first: a new process inherits the peak of its parent, which is still small at this point
    memory = {way: in_new_process(training_memory, way) for way in LOSSES}
    training = alternate({way: trainer(loss) for way, loss in LOSSES.items()}, arguments.repetitions)
    print(f"Batch {B}, {S} source and {T} target tokens, V = {V:,}, beam {BEAM}; {machine()}.\n")
    rows = [rates("training", training, B * T, "target tokens/s")]
    used = [f"{memory[way]:,.0f}" for way in LOSSES]
    rows.append(["training, peak memory", "MB", *used, f"{memory['ours'] / memory['naive']:.2f}"])
    for size in DECODED:
        seconds = searches(size, max(1, arguments.repetitions // 2))
        rows.append(rates(f"decoding {size} documents at a time", seconds, size, "documents/s"))
    print_table(["", "unit", "ours", "naive", "ours / naive"], rows)


if __name__ == "__main__":
    main()
