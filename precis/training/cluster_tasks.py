"""Consistency of the tasks that SLURM or torchrun started with the devices of the trainer."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from pytorch_lightning.plugins import CheckpointIO
from pytorch_lightning.plugins.environments import ClusterEnvironment, SLURMEnvironment, TorchElasticEnvironment

from datamodules.documents import UserError
from precis.runs.checkpoint_files import WholeCheckpoints


def number_of_devices(trainer: Mapping[str, Any]) -> int | None:
    """Return the number of devices per node by the arguments of Lightning's Trainer; None for all available ones."""
    devices = trainer.get("devices", "auto")
    if isinstance(devices, (list, tuple)):
        return len(devices)
    if str(devices) in ("auto", "-1"):
        return 1 if trainer.get("accelerator") == "cpu" else None  # on CPUs, Lightning's auto is 1
    if "," in str(devices):  # indices of devices, as in "0,2" or "1,"
        return len([word for word in str(devices).split(",") if word.strip()])
    return int(devices)


def check_run_dir() -> None:
    """Raise a `UserError` if there are several processes: without `--run_dir`, each would choose its own folder."""
    by_torchrun = TorchElasticEnvironment.detect() and int(os.environ.get("WORLD_SIZE", 1)) > 1
    if by_torchrun or (SLURMEnvironment.detect() and int(os.environ["SLURM_NTASKS"]) > 1):
        problem = "starts several processes, each of which would choose its own run folder"
        raise UserError(f"{'torchrun' if by_torchrun else 'SLURM'} {problem}; pass --run_dir")


def check_tasks(trainer: Mapping[str, Any]) -> None:
    """Raise a `UserError` if tasks and devices differ: a model would be trained twice, or tasks would wait forever."""
    devices = number_of_devices(trainer) or max(1, torch.cuda.device_count())  # None: all GPUs, or the CPU
    nodes = int(trainer.get("num_nodes") or 1)
    if TorchElasticEnvironment.detect():
        per_node, total = (int(os.environ.get(name, 1)) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        _compare("devices", devices, per_node, "torchrun starts {} processes a node (--nproc-per-node)")
        _compare("num_nodes", nodes, total // per_node, "torchrun runs on {} nodes (--nnodes)")
    elif SLURMEnvironment.detect():  # a task of a SLURM job; not a process started by hand in a SLURM shell
        total = int(os.environ["SLURM_NTASKS"])
        started_nodes = int(os.environ.get("SLURM_NNODES", 1))
        if total > 1 and "SLURM_STEP_ID" not in os.environ:  # set by srun
            raise UserError(f"the job has {total} tasks but this is one process; start it with srun precis fit ...")
        _compare("num_nodes", nodes, started_nodes, "SLURM gives the job {} nodes (--nodes)")
        per_node = max(1, total // started_nodes)
        _compare("devices", devices, per_node, "SLURM starts {} tasks a node (--ntasks-per-node)")


def _compare(key: str, configured: int, num_started: int, description: str) -> None:
    """Raise a `UserError` if `trainer.KEY` differs from the number started, which replaces {} in `description`."""
    if configured != num_started:
        addition = " and --trainer.strategy ddp" if key == "devices" and configured == 1 else ""
        remedy = f"pass --trainer.{key} {num_started}{addition}, or ask for {configured}"
        raise UserError(f"{description.format(num_started)} but trainer.{key} is {configured}; {remedy}")


def trainer_plugins(configured: Any) -> list[Any]:
    """Return the config's plugins; add those for atomic checkpoints and SLURM jobs if it has none of the kind."""
    plugins = configured if isinstance(configured, (list, tuple)) else [configured]
    plugins = [plugin for plugin in plugins if plugin]  # a config without plugins has None
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        plugins.append(WholeCheckpoints())  # writes them atomically
    has_environment = any(isinstance(plugin, ClusterEnvironment) for plugin in plugins)
    if not has_environment and SLURMEnvironment.detect() and not TorchElasticEnvironment.detect():
        per_node = int(os.environ["SLURM_NTASKS"]) // int(os.environ.get("SLURM_NNODES", 1))
        os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(per_node))  # Lightning reads it
        plugins.append(SLURMEnvironment(auto_requeue=False))  # `GracefulStop` requeues, after saving
    return plugins
