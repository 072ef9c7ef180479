"""Part `attention`: encoder attention and encoder layers with one document, 16 heads of 64, bf16 (on a CPU: fp32).

Implementations are those of `benchmarks.discourse_attention`, with one more path: `chunked_product`, which is S p by
chunks, as attention dropout needs it. `transformers` and `recipe` are Hugging Face's LED, without discourse and with
the released token-level factors.
"""

import itertools
import statistics
from pathlib import Path
from typing import Any

import torch

from benchmarks import discourse_attention as single
from benchmarks.gpu.cells import Cell, estimate

PATHS = {"plain": "auto", "product": "auto", "log_bias": "auto", "chunked_product": "chunked"}
WAYS = ("transformers", "recipe", *PATHS)
LENGTHS, WINDOWS, REPETITIONS = (16_384, 1024, 4096, 8192, 2048, 32_768), (1024, 512), 20
# aims: times of both passes and memory at T = 16,384, w = 1,024
AIMS = "at least 3 times as fast as the recipe, at most 1.3 times the time of plain, at most a quarter of its memory"


def costs(part: str, length: int, window: int) -> tuple[float, float]:
    """Return floating-point operations and bytes of both passes that no implementation can avoid.

    Products of attention: 2 of them in the forward pass and 5 in the backward pass (scores are computed again), each
    2 T (w + 1) D. Projections: 3 of D x D per token, and in a layer the output's and the feed-forward network's, with a
    backward pass twice as expensive. Bytes: activations and weights in bf16, read or written once by each product.
    """
    width, inner = 1024, 4096  # widths of LED-large
    weights = 3 * width**2 + (width**2 + 2 * width * inner if part == "layer" else 0)
    flops = 7 * 2 * length * (window + 1) * width + 3 * 2 * length * weights
    tokens = length * width * (8 if part == "attention" else 14) + (2 * length * inner if part == "layer" else 0)
    return flops, 2 * 3 * (tokens + weights)


def peak_memory(run, device: str) -> int | None:
    """Return the bytes that both passes add at their peak; None on a CPU."""
    if device == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def measure(way: str, part: str, length: int, window: int, device: str, repetitions: int) -> dict[str, Any]:
    """Return milliseconds, memory, and shares of the limits of one implementation."""
    path = PATHS.get(way, "auto")
    run = single.make_run(way.removeprefix("chunked_"), part, length, window, device, path)
    for _ in range(2):  # compilation, and the allocator's first blocks
        run()
    forward, both = (statistics.median(times) for times in zip(*(run() for _ in range(repetitions))))
    flops, moved = costs(part, length, window)
    return {
        "forward_ms": 1e3 * forward, "both_ms": 1e3 * both, "memory_bytes": peak_memory(run, device),
        "tflops": flops / both / 1e12, "tbytes": moved / both / 1e12, "ns_per_token": 1e9 * both / length,
    }  # fmt: skip


def limits(device: str, size: int, count: int) -> dict[str, Any]:
    """Return measured rates of this device: a matrix product, and a copy (bytes read and written)."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    source = torch.randn(count, device=device)
    target = torch.empty_like(source)
    times: dict[str, list[float]] = {"product": [], "copy": []}
    for _ in range(10):
        for name, operation in (("product", lambda: a @ b), ("copy", lambda: target.copy_(source))):
            start = single.now(a)
            operation()
            times[name].append(single.now(a) - start)
    product, copy = (statistics.median(times[name][3:]) for name in ("product", "copy"))
    return {"tflops": 2 * size**3 / product / 1e12, "tbytes": 2 * source.nbytes / copy / 1e12}


def cells(arguments) -> list[Cell]:
    """Return the cells, the lengths and windows of most interest first."""
    device = arguments.device
    lengths, windows, repetitions = (LENGTHS, WINDOWS, REPETITIONS) if not arguments.tiny else ((64,), (16,), 1)
    size, count = (8192, 2**30) if not arguments.tiny else (64, 1024)
    result = [Cell("limits", 10, lambda: limits(device, size, count), {"size": size, "count": count})]
    for length, window, part, way in itertools.product(lengths, windows, ("attention", "layer"), WAYS):
        flops, moved = costs(part, length, window)
        fused = way in ("plain", "product", "log_bias")
        compiling = 20 if fused and part == "attention" else 2  # the layer has the same kernel
        settings = {"way": way, "part": part, "length": length, "window": window}
        result.append(Cell(
            name=f"{part}-{length}-{window}-{way}",
            # implementations that are not fused move every score several times
            seconds=estimate(flops, moved * (1 if fused else 20), 3 + repetitions, compiling),
            run=lambda s=settings: measure(**s, device=device, repetitions=repetitions),
            settings=settings,
        ))  # fmt: skip
    return result


def report(records: list[dict[str, Any]], folder: Path) -> list[str]:
    """Return a table for the summary, and draw time and memory by length."""
    done = {record["name"]: record["result"] | record["settings"] for record in records if "result" in record}
    measured_limits = done.pop("limits", None)
    lines = [f"Aims at T = 16,384, w = 1,024: {AIMS}.", ""]
    if measured_limits:
        rates = f"{measured_limits['tflops']:.3g} TFLOP/s, {measured_limits['tbytes']:.3g} TB/s"
        lines += [f"Limits measured here: {rates}. The last two columns are shares of them.", ""]
    head = ["part", "T", "w", "way", "forward, ms", "both, ms", "memory, MB", "ns per token", "FLOPs", "bandwidth"]
    lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in sorted(done.values(), key=lambda r: (r["part"], r["length"], r["window"], WAYS.index(r["way"]))):
        shares = [
            f"{row[unit] / measured_limits[unit]:.0%}" if measured_limits else "" for unit in ("tflops", "tbytes")
        ]
        memory = "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 1e6:,.0f}"
        times = [f"{row['forward_ms']:,.2f}", f"{row['both_ms']:,.2f}", memory, f"{row['ns_per_token']:,.0f}", *shares]
        values = [row["part"], f"{row['length']:,}", f"{row['window']:,}", row["way"], *times]
        lines.append(f"| {' | '.join(values)} |")
    draw(list(done.values()), folder / "attention.png")
    return [*lines, ""]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw milliseconds of both passes of an encoder layer by length, for each window; a line of slope 1 is linear."""
    from matplotlib.figure import Figure

    windows = sorted({row["window"] for row in rows})
    figure = Figure(figsize=(5 * max(1, len(windows)), 4), layout="constrained")
    for axes, window in zip(figure.subplots(1, max(1, len(windows)), squeeze=False)[0], windows):
        for way in WAYS:
            chosen = [r for r in rows if (r["part"], r["window"], r["way"]) == ("layer", window, way)]
            chosen.sort(key=lambda row: row["length"])
            axes.plot([row["length"] for row in chosen], [row["both_ms"] for row in chosen], marker="o", label=way)
        axes.set(xscale="log", yscale="log", xlabel="tokens T", ylabel="both passes, ms", title=f"window {window}")
        axes.legend()
    figure.savefig(path, dpi=120)
