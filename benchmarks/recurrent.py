"""A bidirectional LSTM over rows of different lengths: `networks.recurrent` beside PyTorch's packed sequences.

    python benchmarks/recurrent.py

Forward and backward, fp32, processor seconds of one thread, medians of three that take turns.
"""

import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lightning_modules.networks.recurrent import bidirectional

# rows, longest, inputs, H, shortest
CASES = ((32, 120, 128, 256, 100), (16, 400, 128, 256, 380), (8, 400, 128, 256, 200))


def packed(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """The states of a packed sequence."""
    rows = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(rows)[0], batch_first=True, total_length=inputs.shape[1])[0]


def ours(lstm: nn.LSTM, inputs: Tensor, lengths: Tensor) -> Tensor:
    """The same states."""
    return bidirectional(lstm, inputs, lengths).states


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}\n\n| rows | lengths | packed, s | ours, s | |\n|---|---|---|---|---|")
    for rows, longest, width, size, shortest in CASES:
        torch.manual_seed(0)
        lstm = nn.LSTM(width, size, batch_first=True, bidirectional=True)
        inputs = torch.randn(rows, longest, width, requires_grad=True)
        lengths = torch.randint(shortest, longest + 1, (rows,))
        lengths[0] = longest
        times: dict[str, list[float]] = {"packed": [], "ours": []}
        for _ in range(3):
            for way in (packed, ours):
                began = time.process_time()
                way(lstm, inputs, lengths).sum().backward()
                times[way.__name__].append(time.process_time() - began)
        theirs, mine = (statistics.median(times[name]) for name in ("packed", "ours"))
        print(f"| {rows} | {shortest} to {longest} | {theirs:.2f} | {mine:.2f} | x {theirs / mine:.1f} |")


if __name__ == "__main__":
    main()
