"""Time and memory of attention with discourse, against Hugging Face's LED and against the released recipe.

    python -m benchmarks.discourse_attention [--lengths 1024 4096] [--windows 512 1024] [--device cpu]

One document, one layer of LED-base's size (12 heads of 64, fp32) on a CPU, of LED-large's (16, bf16) where there is
CUDA, a global token in front, EDUs of 8.4 tokens, 15 relations. `attention` is the self-attention module with its
projections, `layer` the encoder layer around it. The ways:

    transformers   Hugging Face's, without discourse
    recipe         the same, its scores multiplied by 1 + p, a token-level fp32 tensor [T, w + 1] that is there already
                   (as in the code that the paper released; one plane for all heads)
    plain          ours without discourse
    product        ours, S p
    log_bias       ours, S + beta_h log(eps + p), beta learned: the table gets a gradient

Each is run in turn, `--repetitions` times; times are medians, in milliseconds, forward with what the backward pass will
need, and both passes; making the table from the band is part of them. `memory` is what both passes add at their peak,
in a process of its own on a CPU (its resident memory), as counted by the allocator on CUDA; `x` is time of both passes
over that of `transformers`, and over that of `plain` for ways with discourse. On CUDA a second table has the copy of
the recipe's tensor from the host.
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers import LEDConfig
from transformers.models.led.modeling_led import LEDEncoderLayer, LEDEncoderSelfAttention

from benchmarks.measuring import machine, options, print_table
from lightning_modules.rstformer.injection import DiscourseInjection, View, head_relations, reach
from lightning_modules.rstformer.led import BatchView, LayerView, LEDWindowAttention

HEADS = 16 if torch.cuda.is_available() else 12  # LED-large's and LED-base's
WIDTH, INNER, RELATIONS, EDU = 64 * HEADS, 256 * HEADS, 15, 8.4
WAYS = ("transformers", "recipe", "plain", "product", "log_bias")


class Recipe(LEDEncoderSelfAttention):
    """Hugging Face's attention with scores multiplied by a token-level tensor, `factors`, [1, T, 1, w + 1]."""

    factors: Tensor

    def _sliding_chunks_query_key_matmul(self, query: Tensor, key: Tensor, window_overlap: int) -> Tensor:
        scores = super()._sliding_chunks_query_key_matmul(query, key, window_overlap)
        # masks go through the same function, with one value a token
        return (scores * self.factors).to(scores.dtype) if query.shape[-1] > 1 else scores


def token_level(band: Tensor, edu: Tensor, window: int) -> Tensor:
    """1 + p of the first relation for each token and place in its window, [1, T, 1, w + 1]."""
    other = torch.arange(len(edu), device=edu.device)[:, None] + torch.arange(-window, window + 1, device=edu.device)
    inside = (other >= 0) & (other < len(edu))
    column = edu[other.clamp(0, len(edu) - 1)] - edu[:, None] + band.shape[2] // 2
    p = band[0, edu[:, None], column.clamp(0, band.shape[2] - 1), 0]
    return (1 + p * inside)[None, :, None].float()


def made(way: str, what: str, length: int, window: int, device: str) -> Callable[[], tuple[float, float]]:
    """What runs one way once, and returns the seconds of the forward pass and of both."""
    torch.manual_seed(0)
    config = LEDConfig(
        d_model=WIDTH, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
        encoder_layers=1, num_hidden_layers=1, attention_window=[window], attention_dropout=0.0, dropout=0.0,
    )  # fmt: skip
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = LEDEncoderLayer(config, 0).to(device, dtype)
    hidden = torch.randn(1, length, WIDTH, device=device, dtype=dtype)
    edu = (torch.arange(length, device=device) / EDU).long()
    is_global = torch.arange(length, device=device)[None] == 0
    view = BatchView(View.of(torch.ones_like(is_global), is_global, edu[None]))
    half = reach(view.view.token_edu, window // 2)
    band = torch.rand(1, int(edu[-1]) + 1, 2 * half + 1, RELATIONS, device=device) / RELATIONS
    if way in ("transformers", "recipe"):
        if way == "recipe":
            attention = Recipe(config, 0).to(device, dtype)
            attention.factors = token_level(band, edu, window // 2)
            layer.self_attn.longformer_self_attn = attention
        mask = is_global * 10000.0
        inputs = {"attention_mask": mask, "is_index_masked": mask < 0, "is_index_global_attn": is_global}
        inputs["is_global_attn"] = True
    else:
        layer.self_attn.longformer_self_attn = LEDWindowAttention(layer.self_attn.longformer_self_attn)
        weights = head_relations(HEADS, RELATIONS, range(RELATIONS))
        injection = None if way == "plain" else DiscourseInjection(weights, way).to(device)
        inputs = {"attention_mask": LayerView(view, injection and (lambda: injection(band)))}
    return lambda: timed(layer if what == "layer" else layer.self_attn.longformer_self_attn, hidden, inputs)


def timed(module: nn.Module, hidden: Tensor, inputs: dict) -> tuple[float, float]:
    """Seconds of the forward pass and of both."""
    module.zero_grad()
    hidden = hidden.detach().requires_grad_()
    start = now(hidden)
    out = module(hidden, **inputs)[0]
    middle = now(hidden)
    out.sum().backward()
    return middle - start, now(hidden) - start


def now(x: Tensor) -> float:
    """The time, when all work on a tensor's device is done."""
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def resident(name: str) -> int:
    """A figure of this process's memory, in bytes (`VmRSS`, `VmHWM`)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def peak(*arguments) -> int:
    """Bytes that both passes add at their peak; in a new process on a CPU."""
    run = made(*arguments)
    if arguments[-1] == "cuda":
        run()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    before = resident("VmRSS")
    run()
    return max(0, resident("VmHWM") - before)


def rows(what: str, length: int, window: int, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """The table's rows of one length and window."""
    ways = [way for way in WAYS if way in arguments.ways]
    runs = {way: made(way, what, length, window, arguments.device) for way in ways}
    times = {way: [] for way in ways}
    for repetition in range(-(arguments.device == "cuda"), arguments.repetitions):
        for way, run in runs.items():
            seconds = run()
            if repetition >= 0:
                times[way].append(seconds)
    median = {way: [1e3 * statistics.median(column) for column in zip(*times[way])] for way in ways}
    for way in ways:
        case = (way, what, length, window, arguments.device)
        if arguments.device == "cuda":
            memory = peak(*case)
        else:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                memory = pool.apply(peak, case)
        ratios = [
            f"{median[way][1] / median[other][1]:.2f}" if other in ways and way in compared else ""
            for other, compared in (("transformers", WAYS), ("plain", WAYS[3:]))
        ]
        figures = [f"{value:,.0f}" for value in (*median[way], memory / 1e6)]
        yield [what, f"{length:,}", f"{window:,}", way, *figures, *ratios]


def copied(length: int, window: int, repetitions: int) -> list[str]:
    """A row of what the recipe's tensor takes from the host's memory to the GPU: milliseconds, megabytes."""
    factors, taken = torch.rand(1, length, 1, window + 1), []
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        now(factors.cuda())
        taken.append(1e3 * (time.perf_counter() - start))
    return [f"{length:,}", f"{window:,}", f"{statistics.median(taken[1:]):,.1f}", f"{factors.nbytes / 1e6:,.0f}"]


def main() -> None:
    """Prints the tables."""
    parser = options(__doc__, repetitions=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--lengths", type=int, nargs="+", help="tokens; to 4,096 on a CPU, 16,384 on CUDA")
    parser.add_argument("--windows", type=int, nargs="+", default=[512, 1024], help="tokens to both sides together")
    parser.add_argument("--parts", choices=("attention", "layer"), nargs="+", default=["attention", "layer"])
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, on a CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lengths = arguments.lengths or [1024, 2048, 4096, *([8192, 16384] if arguments.device == "cuda" else [])]
    print(f"{machine(arguments.device)}, load {os.getloadavg()[0]:.1f}\n")
    cases = [case for case in itertools.product(arguments.parts, lengths, arguments.windows) if case[1] >= case[2]]
    head = ["part", "T", "w", "way", "forward", "both", "memory, MB", "x transformers", "x plain"]
    print_table(head, (row for case in cases for row in rows(*case, arguments)))
    if arguments.device == "cuda":
        print("Copying the recipe's tensor from the host, which its times above leave out\n")
        sizes = itertools.product(lengths, arguments.windows)
        print_table(["T", "w", "ms", "MB"], (copied(*size, arguments.repetitions) for size in sizes))


if __name__ == "__main__":
    main()
