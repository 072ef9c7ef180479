"""Memory of a training step: tensors kept for the backward pass by module and shape, weights, gradients, optimizer.

    python -m benchmarks.training_memory --config CONFIG [arguments of precis fit]

The config's model takes training steps on its own data, on the CPU; the largest of the first batches (`--batches`) is
examined. A tensor counts once, with its whole storage, for the innermost module that keeps it. The peak is that of
PyTorch's allocations within the step; resident memory is that of the process, with its libraries.
"""

import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.measuring import machine, model_and_data, options, print_table, training_step

MIB = 2**20
ROWS = 14  # rows of the table; the rest is summed in one row


class SavedTensors:
    """Bytes that a forward pass keeps for the backward pass, by module and shape.

    Args:
        model: its modules are told apart by their names, layers of equal structure put together.

    Attributes:
        bytes: bytes by module (`encoder.layer.*.output`) and shape with type (`16x512x384 float32`).
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.bytes = model, Counter()
        self._open: list[str] = []  # names of the modules that are being called, the innermost last
        self._counted = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self._kept: list[Tensor] = []  # so that no storage takes the place of another one

    def measure(self, forward: Callable[[], Tensor]) -> Tensor:
        """Return the result of a forward pass, whose tensors are recorded."""
        with ExitStack() as stack:
            for name, module in self.model.named_modules():
                group = re.sub(r"\.\d+\b", ".*", name)
                enter = lambda *_, group=group: self._open.append(group)  # noqa: E731
                leave = lambda *_: self._open.pop() and None  # noqa: E731
                for handle in (module.register_forward_pre_hook(enter), module.register_forward_hook(leave)):
                    stack.callback(handle.remove)
            stack.enter_context(saved_tensors_hooks(self._record, lambda tensor: tensor))
            return forward()

    def _record(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._counted:
            self._counted.add(storage.data_ptr())
            self._kept.append(tensor.detach())
            shape = f"{'x'.join(map(str, tensor.shape))} {str(tensor.dtype).removeprefix('torch.')}"
            self.bytes[self._open[-1] if self._open else "loss", shape] += storage.nbytes()
        return tensor


def peak_of(step: Callable[[], object]) -> int:
    """Return the peak of the bytes that PyTorch allocates within a function, without those allocated before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    allocated = peak = 0
    events = (event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]")
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        peak = max(peak, allocated)
    return peak


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def total_bytes(tensors) -> int:
    """Return the total bytes of tensors; None is skipped."""
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--batches", type=int, default=20, help="training batches, of which the largest is examined")
    arguments, of_fit = parser.parse_known_args()
    start = resident()
    config, model, data = model_and_data(of_fit)
    data.prepare_splits(["train"])
    data.setup("fit")
    model.set_tokenizer(data.tokenizer)
    batches = [batch for batch, _ in zip(data.train_dataloader(), range(arguments.batches))]
    batch = max(batches, key=lambda batch: sum(x.numel() for x in vars(batch).values() if isinstance(x, Tensor)))
    half = "bf16" in str(config["trainer"].get("precision"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)

    def loss(batch=batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return sum(model.loss_terms(batch).values())

    step = training_step(model, loss, optimizer)
    loaded = resident()
    step()
    saved, peak, after = SavedTensors(model.train()), peak_of(step), resident()
    saved.measure(loss)
    print(f"{machine()}, {'bf16 (autocast)' if half else 'fp32'}; a batch of {batch.batch_size} documents\n")
    rows = saved.bytes.most_common()
    rest = sum(size for _, size in rows[ROWS:])
    table = [[*key, f"{size / MIB:,.0f}"] for key, size in rows[:ROWS]]
    total = sum(saved.bytes.values())
    print_table(
        ["kept for the backward pass by", "shape", "MiB"],
        [*table, [f"{len(rows) - ROWS} smaller ones", "", f"{rest / MIB:,.0f}"], ["all", "", f"{total / MIB:,.0f}"]],
    )
    states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)]
    parts = {
        "weights": total_bytes(model.parameters()), "gradients": total_bytes(p.grad for p in model.parameters()),
        "moments of Adam": total_bytes(states), "kept for the backward pass": total,
        "peak of a step, beside weights and moments": peak, "resident before the data": start,
        "resident with data and model": loaded, "resident after two steps": after,
    }  # fmt: skip
    print_table(["", "MiB"], [[name, f"{size / MIB:,.0f}"] for name, size in parts.items()])


if __name__ == "__main__":
    main()
