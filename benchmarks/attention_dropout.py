"""Training steps with PyTorch's attention and dropout, and with those of the suite.

    python -m benchmarks.attention_dropout [--models bertsum hierarchical graph] [--repetitions 3]

BertSum over MiniLM with 8 documents of about 500 tokens, in two windows beyond 512; the Hierarchical Transformer and
GraphSum at the paper's sizes with 2 documents of 24 x 60 tokens and 200 target tokens. Dropout is 0.1 everywhere. A
step is loss, gradients, clipping and optimizer, fp32. The first way is PyTorch's alone, the second has our attention,
the third our dropout of hidden states as well. Times are medians of processor time of one thread over repetitions that
alternate between the ways; memory is what two steps add to the peak of a separate process;
`matrix products` is their share of the processor time in PyTorch's profiler, so that a step can become at most
1 / share times as fast without faster products.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from benchmarks.extractive import batches, made_up
from benchmarks.graphsum import made_model, made_up_batch, our_loss
from benchmarks.measuring import (
    alternate,
    in_new_process,
    machine,
    memory_of_steps,
    options,
    print_table,
    training_step,
)
from datamodules.documents import Document
from datamodules.text.encoder_tokenizer import EncoderTokenizer
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.networks.dropout import Dropout

MODELS = ("bertsum", "hierarchical", "graph")
WAYS = ("pytorch", "attention", "attention and dropout")
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


def make_step(model_name: str) -> Callable[[], None]:
    """Return a training step of a model."""
    if model_name != "bertsum":
        model, batch = made_model(encoder=model_name), made_up_batch()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        return training_step(model, lambda: our_loss(model, batch), optimizer)
    torch.manual_seed(0)
    documents = [Document(d.id, [d.sentences[:8]], d.references) for d in made_up(8)]
    tokenizer = EncoderTokenizer.of_checkpoint("minilm")
    model, batch = BertSum(30_522), batches(documents, tokenizer, "minilm")[0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return training_step(model, lambda: model.loss_terms(batch)["extraction"], optimizer)


def run(way: str, step: Callable[[], None]) -> None:
    """Run a training step with PyTorch's functions, with our attention, or with our attention and dropout."""
    with ExitStack() as patches:
        if way != "attention and dropout":
            patches.enter_context(patch.object(Dropout, "forward", nn.Dropout.forward))
        if way == "pytorch":
            for module in ("transformer", "pretrained_attention"):  # the order of arguments is the same
                target = f"lightning_modules.networks.{module}.attention"
                patches.enter_context(patch(target, scaled_dot_product_attention))
        step()


def peak_memory(model_name: str, way: str) -> float:
    """Return the megabytes that two steps add; to be called in a new process."""
    torch.set_num_threads(1)
    return memory_of_steps(partial(run, way, make_step(model_name)))


def product_share(way: str, step: Callable[[], None]) -> float:
    """Return the share of matrix products in the time of a step."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run(way, step)
    events = profiler.key_averages()
    products = sum(event.self_cpu_time_total for event in events if event.key in PRODUCTS)
    return products / sum(event.self_cpu_time_total for event in events)


def main() -> None:
    parser = options(__doc__, repetitions=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    rows = []
    for name in arguments.models:
        # memory first: a new process inherits the peak of its parent, which is still small at this point
        memory = {way: in_new_process(peak_memory, name, way) for way in WAYS}
        step = make_step(name)
        ways = {way: partial(run, way, step) for way in WAYS}
        seconds = {way: times.medians()[1] for way, times in alternate(ways, arguments.repetitions).items()}
        for way in WAYS:
            ratio, share = seconds[WAYS[0]] / seconds[way], product_share(way, step)
            rows.append([name, way, f"{seconds[way]:.2f}", f"x {ratio:.2f}", f"{memory[way]:,.0f}", f"{share:.0%}"])
    print_table(["model", "ours", "CPU s", "", "memory, MB", "matrix products"], rows)


if __name__ == "__main__":
    main()
