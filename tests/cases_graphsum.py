"""GraphSum and its two baselines, small enough for a test; sentences are the paragraphs."""

from typing import Any

from case import Case

from datamodules.graphs import ParagraphRule
from lightning_modules.decoding.options import DecodingOptions


def _graphsum(name: str, **changes: Any) -> Case:
    model = {"vocab_size": 290, "hidden_size": 12, "heads": 2, "inner_size": 16, "token_layers": 1}
    model |= {"paragraph_layers": 1, "decoder_layers": 1, "dropout": 0.1, "warmup_steps": 20, "val_summaries": 2}
    model["decoding"] = DecodingOptions(beam_size=2, min_length=1, max_length=40)
    data = {"vocab_size": 290, "paragraphs": ParagraphRule(sentences=1), "max_tokens": 40, "max_target": 40}
    by_heart = {"vocab_size": 400, "hidden_size": 48, "inner_size": 96, "dropout": 0.0, "label_smoothing": 0.0}
    by_heart["norm"] = "pre"  # learns at a rate of 0.01 without a warm-up
    return Case(
        name,
        "lightning_modules.GraphSum",
        "datamodules.GraphSumData",
        model | changes,
        data | {"batch_size": 4},
        {"dropout": 0.0},
        overfit_args=(by_heart, {"vocab_size": 400}),
    )


CASES = [
    _graphsum("graphsum", learn_sigma=True),
    _graphsum("hierarchical", kind="hierarchical"),
    _graphsum("flat", kind="flat", norm="post"),
]
