"""Speed of GraphSum compared with a plain loop over documents and paragraphs.

    python -m benchmarks.graphsum

The loop has the same parameters and, as tests/benchmarks/test_naive_models.py shows, the same results. It processes
one document and one paragraph at a time: tokens are encoded and pooled paragraph by paragraph, and every decoder layer
attends to the tokens of one paragraph after the other, as in the formulas; the loss is that of PyTorch over all logits.

Training is loss, gradients, clipping and Adam at 24 paragraphs of 60 tokens and 200 target tokens, two documents, fp32.
Beam search writes 100 tokens, from keys and values that are kept or from the whole prefix at every step. Times are
medians over repetitions that alternate between implementations, so that a busy machine slows both; processor time is
more reliable on a busy machine.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measuring import alternate, machine, options, print_table, training_step
from datamodules.graphsum import GraphSumBatch
from lightning_modules.decoding.beam_search import Hypotheses, State, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.graphsum.decoder import GraphAttention
from lightning_modules.graphsum.encoder import GraphSumNetwork, Memory
from lightning_modules.graphsum.module import GraphSum
from lightning_modules.networks.output_layer import DecodingLayer, best_words
from lightning_modules.networks.transformer import sinusoidal

# sizes of the vocabulary, documents, paragraphs, tokens of a paragraph, tokens of a target, and beam
V, B, L, N, T, BEAM = 32_000, 2, 24, 60, 200, 5


def naive_attention(
    attention: GraphAttention, x: Tensor, tokens: list[Tensor], paragraphs: Tensor, graph: Tensor
) -> Tensor:
    """Return d_t, what the decoder states `x` [1, T, D] of one document read from its paragraphs, [1, T, D].

    `tokens` has the states of the tokens of each paragraph [n, D]; `paragraphs` is [L, D], `graph` [L, L]. N are heads.
    """
    split, width, L = attention.tokens.split, x.shape[-1] // attention.tokens.heads, len(tokens)
    query = split(attention.paragraphs.query(x[0]))                                          # [N, T, D / N]
    key, value = split(attention.paragraphs.key(paragraphs)), split(attention.paragraphs.value(paragraphs))
    scores = query @ key.transpose(1, 2) / math.sqrt(width)                                  # [N, T, L]
    if attention.bias is not None:
        # the predicted central paragraph, [N, T]; a position between two paragraphs interpolates their rows
        position = (L - 1) * torch.sigmoid((torch.tanh(query @ attention.inner) @ attention.outer).squeeze(-1))
        low, high = position.floor().long(), position.ceil().long()                          # [N, T]
        share = (position - low).unsqueeze(-1)
        rows = (1 - share) * graph[low] + share * graph[high]                                # [N, T, L]
        scores = scores - (1 - rows) ** 2 / (2 * torch.exp(attention.bias.log_sigma) ** 2)
    beta = attention.dropout(torch.softmax(scores, -1))  # attention to paragraphs, [N, T, L]
    overall = beta @ value                                                                   # [N, T, D / N]
    query, local = split(attention.tokens.query(x[0])), torch.zeros_like(overall)
    for j, paragraph in enumerate(tokens):
        key, value = split(attention.tokens.key(paragraph)), split(attention.tokens.value(paragraph))
        gamma = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(width), -1)            # [N, T, n]
        local = local + (gamma * beta[:, :, j : j + 1]) @ value
    parts = [part.transpose(0, 1).flatten(1) for part in (overall, local)]
    return attention.join(torch.cat(parts, -1)).unsqueeze(0)


def naive_features(network: GraphSumNetwork, batch: GraphSumBatch, b: int) -> Tensor:
    """Return the decoder features of the target of document `b` of a batch, [T, D]."""
    tokens, pooled = [], []  # states of the tokens of each paragraph, and of the paragraph
    positions = network.positions(*batch.source.shape[1:], batch.source.device)
    for j in range(int(batch.source_mask[b].any(-1).sum())):  # paragraphs without padding
        length = int(batch.source_mask[b, j].sum())
        x = network.embed(batch.source[b, j, :length], positions[j, :length]).unsqueeze(0)
        for layer in network.tokens.layers:
            x = layer(x)
        tokens.append(network.tokens.norm(x)[0])                                             # [n, D]
        pooled.append(network.pooling(tokens[-1], torch.ones(length, dtype=torch.bool)))
    L = len(tokens)
    paragraphs, graph = torch.stack(pooled).unsqueeze(0), batch.graph[b, :L, :L]             # [1, L, D]
    for layer in network.paragraphs:
        paragraphs = layer(paragraphs, torch.ones(1, L, dtype=torch.bool), graph.unsqueeze(0))
    paragraphs = network.paragraph_norm(paragraphs)[0]
    inputs = batch.target_input[b, : int(batch.target_lengths[b])]
    y = network.embed(inputs, sinusoidal(len(inputs), network.size)).unsqueeze(0)            # [1, T, D]
    for layer in network.decoder:
        y = layer.around_attention(y, lambda z, layer=layer: layer.attention(z, z, causal=True))
        attend = layer.cross_attention
        y = layer.around_cross(y, lambda z, attend=attend: naive_attention(attend, z, tokens, paragraphs, graph))
        y = layer.around_feed_forward(y, layer.feed_forward)
    return network.decoder_norm(y)[0]


def naive_loss(model: GraphSum, batch: GraphSumBatch) -> Tensor:
    """Return the label-smoothed cross entropy, the mean over each target, then over the documents."""
    losses = []
    for b in range(batch.batch_size):
        features = naive_features(model.network, batch, b)
        logits = features @ model.network.embedding.weight.T + model.network.output_bias     # [T, V]
        gold = batch.target[b, : len(features)]
        losses.append(F.cross_entropy(logits, gold, label_smoothing=model.loss_weights["smoothing"]))
    return torch.stack(losses).mean()


def our_loss(model: GraphSum, batch: GraphSumBatch) -> Tensor:
    """Return the loss of `GraphSum`."""
    terms = model.loss_terms(batch)
    return sum(model.loss_weights[name] * term for name, term in terms.items())


@torch.no_grad()
def uncached_search(model: GraphSum, batch: GraphSumBatch, options: DecodingOptions) -> Hypotheses:
    """Run a beam search that keeps no keys and values: its state is the prefix, which every step decodes anew."""
    model.eval()
    network, text = model.network, model.tokenizer
    layer = DecodingLayer.of(*network.output_layer(len(text)))

    def step(tokens: Tensor, state: State, memory: State, count: int | None):
        prefix = torch.cat([state["prefix"], tokens.unsqueeze(-1)], -1)                      # [B, K, t]
        features = network.decode(prefix, *Memory.of(memory))[:, :, -1]
        return *best_words(features, layer, count), {"prefix": prefix}

    start = torch.full_like(batch.source[:, 0, 0], text.start)
    state = {"prefix": start.new_zeros(len(start), 0)}
    memory = network.encode(model.source(batch)).tensors()
    return beam_search(step, state, memory, start, text.stop, options, (text.pad, text.start), text.pad)


class FixedText:
    """Tokenizer without words: special symbols first, and the size of the vocabulary."""

    start, pad, stop, paragraph, sentence = 0, 1, 2, 4, 5

    def __len__(self) -> int:
        return V


def made_up_batch() -> GraphSumBatch:
    """Return B documents of random ids, with L paragraphs of N tokens and targets of T tokens, without padding."""
    generator = torch.Generator().manual_seed(1)
    graph = torch.rand(B, L, L, generator=generator)
    graph = ((graph + graph.transpose(1, 2)) / 2).masked_fill(torch.eye(L, dtype=torch.bool), 1)  # symmetric
    source = torch.randint(6, V, (B, L, N), generator=generator)  # ids below 6 are the symbols of `FixedText`
    target = torch.randint(6, V, (B, T), generator=generator)
    return GraphSumBatch(
        ids=[str(b) for b in range(B)],
        references=[[[]] for _ in range(B)],
        source=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        graph=graph,
        places=torch.arange(L * N).expand(B, -1),
        lengths=torch.full((B,), L * N),
        target_input=torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1),  # 0 is the start symbol
        target=target,
        target_lengths=torch.full((B,), T),
        target_rows=torch.arange(B * T),
    )


def made_model(**changes: object) -> GraphSum:
    """Return GraphSum as in the paper: 6 + 2 encoder layers, 8 decoder layers, D = 256."""
    torch.manual_seed(0)
    model = GraphSum(vocab_size=V, **changes)
    model.set_tokenizer(FixedText())
    return model


def trainer(batch: GraphSumBatch, loss: Callable[[GraphSum, GraphSumBatch], Tensor]) -> Callable[[], None]:
    """Return a training step with Adam on a new model; the value of the learning rate has no effect on time."""
    model = made_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    return training_step(model, lambda: loss(model, batch), optimizer)


def measure(task: str, tokens: int, ways: dict[str, Callable[[], object]], repetitions: int) -> None:
    """Time implementations (`ways`, by name) of a task with `tokens` target tokens per document, and print a table."""
    medians = {name: seconds.medians() for name, seconds in alternate(ways, repetitions).items()}
    print(f"\n{task}, {B} documents of {L} x {N} tokens, {tokens} target tokens, fp32\n")
    rows = [[name, f"{wall:.2f}", f"{cpu:.2f}", f"{B * tokens / wall:.3g}"] for name, (wall, cpu) in medians.items()]
    print_table(["implementation", "s", "CPU s", "target tokens/s"], rows)


def training(repetitions: int) -> None:
    """Measure training steps."""
    batch = made_up_batch()
    ways = {"plain loop over documents and paragraphs": trainer(batch, naive_loss), "batched": trainer(batch, our_loss)}
    measure("Training", T, ways, repetitions)


def decoding(repetitions: int) -> None:
    """Measure beam search."""
    model, batch = made_model(), made_up_batch()
    options = DecodingOptions(beam_size=BEAM, min_length=99, max_length=100)  # the same number of steps for both
    ways = {
        "whole prefix at every step": lambda: uncached_search(model, batch, options),
        "keys and values kept": lambda: model.generate(batch, options),
    }
    measure(f"Beam search of size {BEAM}", options.max_length, ways, repetitions)


def main() -> None:
    """Print the tables."""
    parser = options(__doc__, repetitions=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="number of threads of PyTorch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(machine())
    training(arguments.repetitions)
    decoding(max(1, arguments.repetitions // 3))  # fewer, as a search of whole prefixes takes about 20 s


if __name__ == "__main__":
    main()
