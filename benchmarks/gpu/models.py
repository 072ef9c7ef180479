"""Part `models`: training step and decoding of every model, with the sizes of the papers and random weights.

Settings: `public` is eager fp32 with the batch size of a public implementation (the baseline); `bf16` the same batch
under autocast; `bf16-compiled` with a compiled loss; `bf16-large` four times the batch; `decode-fp32` and `decode-bf16`
beam search, or scores of sentences and candidates.
"""

import statistics
from typing import Any

import torch

from benchmarks.gpu.cells import Cell, estimate
from benchmarks.gpu.made_up import Entry, entries
from benchmarks.measuring import alternate, training_step
from lightning_modules.summarizer import weighted_sum

SETTINGS = ("public", "bf16", "decode-bf16", "bf16-large", "decode-fp32", "bf16-compiled")
REPETITIONS = 10


def measure(entry: Entry, setting: str, device: str, repetitions: int) -> dict[str, Any]:
    """Return the seconds of a step or of decoding, documents per second, and the peak of memory."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")  # fp32 as public implementations have it by default
    documents = entry.documents * (4 if setting == "bf16-large" else 1)
    model, batch = entry.build().to(device), entry.batch(documents).to(device)
    half = "bf16" in setting
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if setting.startswith("decode"):
        model.eval()
        run = decoding(entry, model, batch, device, half)
    else:
        run = training(model, batch, device, half, compiled=setting.endswith("compiled"))
    for _ in range(3):  # compilation, autotuning, the allocator's first blocks
        run()
    seconds = statistics.median(alternate({"": run}, repetitions, warm_up=False, device=device)[""].wall)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else None
    rate = documents / seconds
    return {"seconds": seconds, "documents": documents, "documents_per_second": rate, "memory_bytes": memory}


def training(model, batch, device: str, half: bool, compiled: bool):
    """Return a training step: loss, gradients, clipping and AdamW."""
    terms = torch.compile(model.loss_terms) if compiled else model.loss_terms
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=device == "cuda")

    def loss():
        with torch.autocast(device, torch.bfloat16, enabled=half):
            return weighted_sum(terms(batch), model.loss_weights)

    return training_step(model, loss, optimizer)


def decoding(entry: Entry, model, batch, device: str, half: bool):
    """Return a function that writes or scores the summaries of the batch."""

    def run() -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=half):
            entry.decode(model, batch)

    return run


def cells(arguments) -> list[Cell]:
    """Return the cells: the settings of most interest first, for every model."""
    settings = SETTINGS[:3] if arguments.tiny else SETTINGS  # the others take long, and run the same code
    result = []
    for setting in settings:
        repetitions = 1 if arguments.tiny else 3 if setting.startswith("decode") else REPETITIONS
        for name, entry in entries(arguments.tiny).items():
            tokens = entry.tokens * entry.documents * (4 if setting == "bf16-large" else 1)
            result.append(Cell(
                name=f"{name}-{setting}",
                seconds=seconds_of(tokens, setting, repetitions),
                run=lambda e=entry, s=setting, n=repetitions: measure(e, s, arguments.device, n),
                settings={"model": name, "setting": setting, "public": entry.public},
            ))  # fmt: skip
    return result


def seconds_of(tokens: int, setting: str, repetitions: int) -> float:
    """Return estimated seconds, as for 200 million parameters: six operations for each parameter and token.

    Decoding is estimated as 128 steps that each read all weights and take 20 ms to start.
    """
    parameters, slow = 200e6, 1 if "bf16" in setting else 12
    if setting.startswith("decode"):
        return (3 + repetitions) * 128 * 0.02 + 5
    compiling = 60 if setting.endswith("compiled") else 5
    return estimate(slow * 6 * parameters * tokens, 20 * parameters, 3 + repetitions, compiling)


def report(records: list[dict[str, Any]], folder) -> list[str]:
    """Return a table for the summary: documents per second, and relative to the settings of public implementations."""
    done = {r["name"]: r["settings"] | r["result"] for r in records if "result" in r}
    lines = ["| model | setting | batch | documents/s | x public | memory, MB |", "|" + "---|" * 6]
    for row in sorted(done.values(), key=lambda r: (r["model"], SETTINGS.index(r["setting"]))):
        baseline = done.get(f"{row['model']}-{'decode-fp32' if row['setting'].startswith('decode') else 'public'}")
        ratio = f"{row['documents_per_second'] / baseline['documents_per_second']:.2f}" if baseline else ""
        memory = "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 1e6:,.0f}"
        values = [row["model"], row["setting"], row["documents"], f"{row['documents_per_second']:,.1f}", ratio, memory]
        lines.append(f"| {' | '.join(map(str, values))} |")
    public = sorted({f"- {row['model']}, `public`: {row['public']}" for row in done.values()})
    return [*lines, "", *public, ""]
