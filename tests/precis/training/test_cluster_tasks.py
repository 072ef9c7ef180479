"""Check of tasks against devices before training."""

import re
from functools import partial
from unittest.mock import patch

import pytest
from pytorch_lightning.plugins.environments import SLURMEnvironment

from datamodules.documents import UserError
from precis.runs.checkpoint_files import WholeCheckpoints
from precis.sweeping.job import Job
from precis.sweeping.slurm import Profile, check_devices
from precis.training.cluster_tasks import check_run_dir, check_tasks, number_of_devices, trainer_plugins

STEP = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NAME": "sweep"}
NODES = STEP | {"SLURM_NTASKS": "4", "SLURM_NNODES": "2"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}
only = partial(patch.dict, "os.environ", clear=True)  # as a context: variables of the environment, without others


@pytest.mark.parametrize("environment, trainer, said", [
    (STEP | {"SLURM_NTASKS": "2"}, {"devices": 1}, "SLURM starts 2 tasks a node (--ntasks-per-node) but "
     "trainer.devices is 1; pass --trainer.devices 2 and --trainer.strategy ddp, or ask for 1"),
    (NODES, {"devices": 2}, "SLURM gives the job 2 nodes (--nodes) but trainer.num_nodes is 1"),
    ({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}, {"devices": 2}, "start it with srun precis fit"),
    (TORCHRUN, {"devices": 4}, "torchrun starts 2 processes a node (--nproc-per-node) but trainer.devices is 4"),
])  # fmt: skip
def test_tasks_and_devices_are_compared(environment, trainer, said):
    with only(environment), pytest.raises(UserError, match=re.escape(said)):
        check_tasks({"accelerator": "cpu", "num_nodes": 1} | trainer)


def test_processes_of_a_launcher_that_fit_the_devices_do_not_choose_a_run_folder_each():
    interactive = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NAME": "interactive"}
    for environment, count in ((interactive, 1), (NODES, 2)):
        with only(environment):
            check_tasks({"accelerator": "cpu", "devices": count, "num_nodes": count})
    for environment in ({}, TORCHRUN | {"WORLD_SIZE": "1"}):
        with only(environment):
            check_run_dir()
    for environment, launcher in ((STEP | {"SLURM_NTASKS": "2"}, "SLURM"), (TORCHRUN, "torchrun")):
        with only(environment), pytest.raises(UserError, match=f"{launcher} starts several processes.*pass --run_dir"):
            check_run_dir()


def test_devices_are_counted_as_lightning_counts_them_and_a_profile_that_does_not_fit_is_named(tmp_path):
    jobs = [Job(name, tmp_path, {"trainer": {"devices": n, "accelerator": "gpu"}}) for name, n in (("a", 4), ("b", 2))]
    check_devices(Profile(tasks_per_node=4), jobs[:1])
    with pytest.raises(UserError, match=r"point 'b': trainer.devices is 2, but the profile has tasks_per_node 4"):
        check_devices(Profile(tasks_per_node=4), jobs)
    with pytest.raises(UserError, match=r"point 'a': trainer.num_nodes is 1, but the profile has nodes 2"):
        check_devices(Profile(tasks_per_node=4, nodes=2), jobs)
    for devices, accelerator, expected in (
        ("auto", "cpu", 1), ("auto", "auto", None), (-1, "gpu", None), (2, "cpu", 2),
        ("2", "gpu", 2), ("0,3", "gpu", 2), ([1, 2, 3], "gpu", 3),
    ):  # fmt: skip
        assert number_of_devices({"devices": devices, "accelerator": accelerator}) == expected, devices


def test_lightning_does_not_requeue_and_checkpoints_are_written_whole(monkeypatch):
    assert [type(plugin) for plugin in trainer_plugins(None)] == [WholeCheckpoints]
    for name, value in (STEP | {"SLURM_NTASKS": "2", "SLURM_NNODES": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    _, environment = trainer_plugins(None)
    assert isinstance(environment, SLURMEnvironment) and environment.auto_requeue is False
    own = SLURMEnvironment()
    assert trainer_plugins([own])[0] is own and len(trainer_plugins([own])) == 2
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
