"""What happens during training, beside the model.

Classes are imported on first use, so that commands which read predictions load neither torch nor Lightning.
"""

from importlib import import_module
from typing import Any

_CLASSES = {
    "BestCheckpoint": "callbacks.best_checkpoint",
    "CoverageAnnealing": "callbacks.coverage_annealing",
    "GracefulStop": "callbacks.graceful_stop",
    "GradientNorm": "callbacks.monitors",
    "LengthCurriculum": "callbacks.length_curriculum",
    "MonitorCheck": "callbacks.monitor_check",
    "PredictionWriter": "callbacks.predictions",
    "Previews": "callbacks.previews",
    "Scheduled": "callbacks.schedules",
    "SelfCritical": "callbacks.self_critical",
    "StartFrom": "callbacks.start_from",
    "Throughput": "callbacks.monitors",
}

__all__ = list(_CLASSES)


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_CLASSES[name]), name)
