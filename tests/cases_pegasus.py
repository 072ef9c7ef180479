"""PEGASUS in pre-training and in fine-tuning, small enough for a test."""

from case import Case

from lightning_modules.decoding.options import DecodingOptions

_DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=40, length_penalty="gnmt", alpha=0.8)
_MODEL = {"vocab_size": 300, "hidden_size": 16, "heads": 2, "layers": 1, "inner_size": 24, "dropout": 0.1}
_MODEL |= {"val_summaries": 2, "decoding": _DECODING}
_DATA = {"vocab_size": 300, "max_source": 64, "max_target": 40, "batch_size": 4}
_BY_HEART = ({"vocab_size": 400, "hidden_size": 48, "inner_size": 96, "dropout": 0.0}, {"vocab_size": 400})

CASES = [
    Case("pegasus", "lightning_modules.Pegasus", "datamodules.PegasusData", _MODEL, _DATA, {"dropout": 0.0},
         overfit_args=_BY_HEART),
    Case("gap-sentences", "lightning_modules.Pegasus", "datamodules.GapSentenceData", _MODEL,
         _DATA | {"max_source": 100, "ratio": 0.4, "unchanged": 0.2}, {"dropout": 0.0}, overfit_args=_BY_HEART),
]  # fmt: skip
