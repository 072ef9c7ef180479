"""One module a paper: what is learned and how it is trained."""

from importlib import import_module
from typing import Any

_HOMES = {
    "CommunicatingAgents": "lightning_modules.communicating_agents",
    "BertSum": "lightning_modules.bertsum",
    "BertSumAbs": "lightning_modules.bertsum_abs",
    "DiscourseParser": "lightning_modules.discourse_parser",
    "EduSegmenter": "lightning_modules.edu_segmenter",
    "GraphSum": "lightning_modules.graphsum",
    "Pegasus": "lightning_modules.pegasus",
    "MatchSum": "lightning_modules.matchsum",
    "PointerGenerator": "lightning_modules.pointer_generator",
    "RSTformer": "lightning_modules.rstformer",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    # on demand: papers need `datamodules`, which may need `lightning_modules.metrics`
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
