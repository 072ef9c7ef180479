"""The rows of the pointer-generator, small enough for a test."""

from case import Case
from pytorch_lightning import Callback

from callbacks import CoverageAnnealing, LengthCurriculum
from lightning_modules.decoding.options import DecodingOptions


def _pointer_generator(name: str, pointer: bool, coverage: bool) -> Case:
    def moving() -> list[Callback]:
        annealing = [CoverageAnnealing(start_step=2, ramp_steps=8)] if coverage else []
        return [*annealing, LengthCurriculum(source=8, target=3, steps=3)]

    model = {"vocab_size": 40, "embedding_size": 12, "hidden_size": 12, "dropout": 0.1, "embedding_std": 0.1}
    model |= {"val_summaries": 2, "decoding": DecodingOptions(beam_size=2, min_length=1, max_length=12)}
    data = {"vocab_size": 40, "max_source": 30, "max_target": 12, "batch_size": 4}
    by_heart = {"vocab_size": 150, "embedding_size": 64, "hidden_size": 64, "dropout": 0.0}
    return Case(
        name,
        "lightning_modules.PointerGenerator",
        "datamodules.PointerGeneratorData",
        model | {"pointer": pointer, "coverage": coverage},
        data,
        {"dropout": 0.0},
        moving,
        (by_heart, {"vocab_size": 150}),
        overfit_epochs=200,
    )


CASES = [
    _pointer_generator("seq2seq", pointer=False, coverage=False),
    _pointer_generator("pointer", pointer=True, coverage=False),
    _pointer_generator("pointer-coverage", pointer=True, coverage=True),
]
