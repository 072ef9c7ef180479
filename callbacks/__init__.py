"""What happens during training, beside the model."""

from callbacks.best_checkpoint import BestCheckpoint
from callbacks.coverage_annealing import CoverageAnnealing
from callbacks.graceful_stop import GracefulStop
from callbacks.length_curriculum import LengthCurriculum
from callbacks.monitor_check import MonitorCheck
from callbacks.monitors import GradientNorm, Throughput
from callbacks.predictions import PredictionWriter
from callbacks.previews import Previews
from callbacks.schedules import Scheduled
from callbacks.self_critical import SelfCritical
from callbacks.start_from import StartFrom

__all__ = [
    "BestCheckpoint",
    "CoverageAnnealing",
    "GracefulStop",
    "GradientNorm",
    "LengthCurriculum",
    "MonitorCheck",
    "PredictionWriter",
    "Previews",
    "Scheduled",
    "SelfCritical",
    "StartFrom",
    "Throughput",
]
