"""Speed of a bidirectional LSTM over rows of different lengths: `networks.recurrent` and PyTorch's packed sequences.

    python -m benchmarks.recurrent

Forward and backward pass, fp32, processor time of one thread, medians of three alternating repetitions.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.measuring import alternate, machine, print_table
from lightning_modules.networks.recurrent import bidirectional

# rows, longest, inputs, H, shortest
CASES = ((32, 120, 128, 256, 100), (16, 400, 128, 256, 380), (8, 400, 128, 256, 200))


def packed(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """Return the states of a packed sequence."""
    rows = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(rows)[0], batch_first=True, total_length=inputs.shape[1])[0]


def ours(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """Return the same states by our implementation."""
    return bidirectional(lstm, inputs, lengths).states


def row(rows: int, longest: int, width: int, size: int, shortest: int) -> list[str]:
    """Return a row of the table."""
    torch.manual_seed(0)
    lstm = nn.LSTM(width, size, batch_first=True, bidirectional=True)
    inputs = torch.randn(rows, longest, width, requires_grad=True)
    lengths = torch.randint(shortest, longest + 1, (rows,))
    lengths[0] = longest
    ways = {way.__name__: lambda way=way: way(lstm, inputs, lengths).sum().backward() for way in (packed, ours)}
    slow, fast = (seconds.medians()[1] for seconds in alternate(ways, 3, warm_up=False).values())
    return [str(rows), f"{shortest} to {longest}", f"{slow:.2f}", f"{fast:.2f}", f"x {slow / fast:.1f}"]


def main() -> None:
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    print_table(["rows", "lengths", "packed, s", "ours, s", ""], (row(*case) for case in CASES))


if __name__ == "__main__":
    main()
