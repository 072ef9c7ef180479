"""Time and memory of attention with discourse, against Hugging Face's LED and against the released recipe.

    python -m benchmarks.discourse_attention [--lengths 1024 4096] [--windows 512 1024] [--device cpu]

One document, one layer with the size of LED-base (12 heads of 64, fp32) on a CPU, or of LED-large (16 heads, bf16) with
CUDA; one global token at the start, EDUs of 8.4 tokens, 15 relations. `attention` is the self-attention module with its
projections, `layer` the encoder layer around it. Implementations:

    transformers   Hugging Face, without discourse
    recipe         the same, with scores multiplied by 1 + p, a precomputed token-level fp32 tensor [T, w + 1] (as in
                   the released code of the paper; one plane for all heads)
    plain          ours without discourse
    product        ours, S p
    log_bias       ours, S + beta_h log(eps + p) with learned beta, so that the table gets a gradient

They are run in turn, `--repetitions` times. Times are medians in milliseconds of the forward pass (with gradients
enabled) and of both passes, including the computation of the table from the band. `memory` is the memory that both
passes add at their peak: the resident memory of a separate process on a CPU, that of the allocator on CUDA. `x` is the
time of both passes relative to `transformers`, and relative to `plain` for implementations with discourse. On CUDA, a
second table has the time for copying the tensor of `recipe` from the host.
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers import LEDConfig
from transformers.models.led.modeling_led import LEDEncoderLayer, LEDEncoderSelfAttention

from benchmarks.measuring import in_new_process, machine, options, print_table
from lightning_modules.rstformer.injection import DiscourseInjection, View, head_relations, reach_by_document
from lightning_modules.rstformer.led import AttentionPath, LayerView, LEDWindowAttention

HEADS = 16 if torch.cuda.is_available() else 12  # numbers of heads of LED-large and LED-base
WIDTH, INNER, RELATIONS, EDU = 64 * HEADS, 256 * HEADS, 15, 8.4  # sizes of layers; tokens per EDU
WAYS = ("transformers", "recipe", "plain", "product", "log_bias")


class Recipe(LEDEncoderSelfAttention):
    """Hugging Face's attention with scores multiplied by a token-level tensor, `factors`, [1, T, 1, w + 1]."""

    factors: Tensor

    def _sliding_chunks_query_key_matmul(self, query: Tensor, key: Tensor, window_overlap: int) -> Tensor:
        scores = super()._sliding_chunks_query_key_matmul(query, key, window_overlap)
        # masks go through the same function, with one value per token
        return (scores * self.factors).to(scores.dtype) if query.shape[-1] > 1 else scores


def token_level(band: Tensor, edu: Tensor, window: int) -> Tensor:
    """Return 1 + p of the first relation for each token and position in its window, [1, T, 1, w + 1].

    `band` is an LDD [1, E, 2b + 1, R], `edu` the EDU of each token [T], and `window` the tokens on each side, w / 2.
    """
    keys = torch.arange(len(edu), device=edu.device)[:, None] + torch.arange(-window, window + 1, device=edu.device)
    inside = (keys >= 0) & (keys < len(edu))  # keys within the document, [T, w + 1]
    column = edu[keys.clamp(0, len(edu) - 1)] - edu[:, None] + band.shape[2] // 2  # distance of EDUs, from -b
    p = band[0, edu[:, None], column.clamp(0, band.shape[2] - 1), 0]  # [T, w + 1]
    return (1 + p * inside)[None, :, None].float()


def make_run(
    way: str, part: str, length: int, window: int, device: str, path: AttentionPath = "auto"
) -> Callable[[], tuple[float, float]]:
    """Return a function that runs an implementation once and returns the seconds of the forward and of both passes.

    Args:
        way: implementation, see `WAYS`.
        part: `attention` or `layer`.
        length: number of tokens T.
        window: size of the window w, both sides together.
        device: `cpu` (fp32) or `cuda` (bf16).
        path: code path of `LEDWindowAttention`.
    """
    torch.manual_seed(0)  # the same weights and inputs for all implementations
    config = LEDConfig(
        d_model=WIDTH, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
        encoder_layers=1, num_hidden_layers=1, attention_window=[window], attention_dropout=0.0, dropout=0.0,
    )  # fmt: skip
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    layer = LEDEncoderLayer(config, 0).to(device, dtype)
    hidden = torch.randn(1, length, WIDTH, device=device, dtype=dtype)
    edu = (torch.arange(length, device=device) / EDU).long()  # EDU of each token, [T]
    is_global = torch.arange(length, device=device)[None] == 0  # the first token, [1, T]
    view = View.of(torch.ones_like(is_global), is_global, edu[None])  # without padding
    half_width = int(reach_by_document(view.token_edu, window // 2).max())  # so that the LDD covers the window
    band = torch.rand(1, int(edu[-1]) + 1, 2 * half_width + 1, RELATIONS, device=device) / RELATIONS  # a random LDD
    if way in ("transformers", "recipe"):
        if way == "recipe":
            attention = Recipe(config, 0).to(device, dtype)
            attention.factors = token_level(band, edu, window // 2)
            layer.self_attn.longformer_self_attn = attention
        mask = is_global * 10000.0  # as in Hugging Face: positive for global, 0 for local, negative for padding
        inputs = {"attention_mask": mask, "is_index_masked": mask < 0, "is_index_global_attn": is_global}
        inputs["is_global_attn"] = True
    else:
        layer.self_attn.longformer_self_attn = LEDWindowAttention(layer.self_attn.longformer_self_attn, path)
        weights = head_relations(HEADS, RELATIONS, range(RELATIONS))  # the relations that each head reads
        injection = None if way == "plain" else DiscourseInjection(weights, way).to(device)
        inputs = {"attention_mask": LayerView(view, injection and (lambda: injection(band)))}
    return lambda: timed(layer if part == "layer" else layer.self_attn.longformer_self_attn, hidden, inputs)


def timed(module: nn.Module, hidden: Tensor, inputs: dict) -> tuple[float, float]:
    """Run a module forward and backward, and return the seconds of the forward pass and of both passes."""
    module.zero_grad()
    hidden = hidden.detach().requires_grad_()  # a new leaf without a gradient; within a model its input needs one
    start = now(hidden)
    out = module(hidden, **inputs)[0]
    after_forward = now(hidden)
    out.sum().backward()
    return after_forward - start, now(hidden) - start


def now(x: Tensor) -> float:
    """Return the time in seconds after all work on the device of a tensor has finished."""
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def resident(name: str) -> int:
    """Return the resident memory of this process in bytes: now (`VmRSS`) or its maximum so far (`VmHWM`)."""
    with open("/proc/self/status") as status:  # lines such as "VmRSS:  1234 kB"
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def peak(*arguments) -> int:
    """Return the bytes that both passes of `make_run(*arguments)` add at their peak; on a CPU, for a new process."""
    run = make_run(*arguments)
    if arguments[-1] == "cuda":
        run()  # the first run also allocates work space of libraries, which stays
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    before = resident("VmRSS")
    run()
    return max(0, resident("VmHWM") - before)


def rows(part: str, length: int, window: int, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table for one length and window, a row for each implementation."""
    ways = [way for way in WAYS if way in arguments.ways]
    runs = {way: make_run(way, part, length, window, arguments.device) for way in ways}
    times = {way: [] for way in ways}
    warm_up = 1 if arguments.device == "cuda" else 0  # repetitions without timing, in which kernels are loaded
    for repetition in range(-warm_up, arguments.repetitions):
        for way, run in runs.items():
            seconds = run()
            if repetition >= 0:
                times[way].append(seconds)
    medians = {way: [1e3 * statistics.median(column) for column in zip(*times[way])] for way in ways}  # milliseconds
    for way in ways:
        case = (way, part, length, window, arguments.device)
        memory = peak(*case) if arguments.device == "cuda" else in_new_process(peak, *case)
        ratios = []
        for baseline, compared in (("transformers", WAYS), ("plain", ("product", "log_bias"))):
            applies = baseline in ways and way in compared
            ratios.append(f"{medians[way][1] / medians[baseline][1]:.2f}" if applies else "")
        figures = [f"{value:,.0f}" for value in (*medians[way], memory / 1e6)]
        yield [part, f"{length:,}", f"{window:,}", way, *figures, *ratios]


def copied(length: int, window: int, repetitions: int) -> list[str]:
    """Return a row with milliseconds and megabytes for copying the tensor of `recipe` from the host to the GPU."""
    factors, times = torch.rand(1, length, 1, window + 1), []
    for _ in range(repetitions + 1):  # the first one is a warm-up
        start = time.perf_counter()
        now(factors.cuda())
        times.append(1e3 * (time.perf_counter() - start))
    return [f"{length:,}", f"{window:,}", f"{statistics.median(times[1:]):,.1f}", f"{factors.nbytes / 1e6:,.0f}"]


def main() -> None:
    """Print the tables."""
    parser = options(__doc__, repetitions=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--lengths", type=int, nargs="+", help="numbers of tokens; by default up to 4,096 on a CPU")
    parser.add_argument("--windows", type=int, nargs="+", default=[512, 1024], help="window sizes, both sides together")
    parser.add_argument("--parts", choices=("attention", "layer"), nargs="+", default=["attention", "layer"])
    parser.add_argument("--ways", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--threads", type=int, default=1, help="number of threads of PyTorch on a CPU")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lengths = arguments.lengths or [1024, 2048, 4096, *([8192, 16384] if arguments.device == "cuda" else [])]
    print(f"{machine(arguments.device)}, load {os.getloadavg()[0]:.1f}\n")
    cases = itertools.product(arguments.parts, lengths, arguments.windows)
    cases = [(part, length, window) for part, length, window in cases if length >= window]
    head = ["part", "T", "w", "way", "forward", "both", "memory, MB", "x transformers", "x plain"]
    print_table(head, (row for case in cases for row in rows(*case, arguments)))
    if arguments.device == "cuda":
        print("Copying the tensor of `recipe` from the host, which is not part of the times above\n")
        sizes = itertools.product(lengths, arguments.windows)
        print_table(["T", "w", "ms", "MB"], (copied(*size, arguments.repetitions) for size in sizes))


if __name__ == "__main__":
    main()
