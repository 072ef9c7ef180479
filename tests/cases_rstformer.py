"""RSTformer with a learned injection, and without discourse, small enough for a test."""

from case import Case

from lightning_modules.decoding.options import DecodingOptions

_DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=40)
_MODEL = {"vocab_size": 300, "hidden_size": 18, "heads": 3, "layers": 1, "inner_size": 24, "window": 16}
_MODEL |= {"positions": 64, "target_positions": 48, "dropout": 0.1, "schedule": "constant", "lr": 1e-3}
_MODEL |= {"val_summaries": 2, "decoding": _DECODING}
_DATA = {"vocab_size": 300, "max_source": 60, "max_target": 40, "half_width": 8, "batch_size": 4}
_DATA |= {"parser": "right_branching"}
_BY_HEART = ({"vocab_size": 400, "hidden_size": 48, "inner_size": 96, "dropout": 0.0}, {"vocab_size": 400})


def _rstformer(name: str, **settings: object) -> Case:
    ablation = {"ablation": settings["ablation"]} if "ablation" in settings else {}
    return Case(
        name,
        "lightning_modules.RSTformer",
        "datamodules.RSTformerData",
        _MODEL | settings,
        _DATA | ablation,
        {"dropout": 0.0},
        overfit_args=_BY_HEART,
    )


CASES = [_rstformer("rstformer", formula="log_bias"), _rstformer("led", ablation="no_discourse")]
