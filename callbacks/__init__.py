"""Callbacks: mechanisms that change during training, and output of runs.

Classes are imported on first use, so that commands which read predictions load neither torch nor Lightning.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "BestCheckpoint": "callbacks.best_checkpoint",
    "CoverageAnnealing": "callbacks.coverage_annealing",
    "DivergenceCheck": "callbacks.divergence",
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
})  # fmt: skip
