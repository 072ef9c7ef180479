import os
import re
import shlex
import signal
from pathlib import Path

import pytest
from conftest import assert_same_run, step_of

from callbacks import GracefulStop

pytestmark = pytest.mark.integration
LAST = "checkpoints/last.ckpt"


def interrupted(config: Path, run: Path, number: int, *others: str, **where: int) -> list[str]:
    options = [f"--trainer.callbacks.{name}={value}" for name, value in {"number": int(number), **where}.items()]
    options.insert(0, "--trainer.callbacks+=interrupting.Interrupt")
    return ["fit", f"--config={config}", f"--run_dir={run}", *options, *others]


def goes_on(said: str, run: Path, whole: Path, precis, *others: str) -> None:
    """Check that the printed command continues the run to the result of an uninterrupted one."""
    command = shlex.split(re.search(r"continue with: precis (.*)", said)[1])
    precis(*command, *others).succeeded()
    assert_same_run(run, whole)


@pytest.mark.parametrize("number, where, status, step", [
    (signal.SIGINT, {"batch": 3}, 130, 4),
    (signal.SIGTERM, {"batch": 9}, 143, 10),  # in the second epoch
    (signal.SIGINT, {"batch": 6}, 130, 7),  # the last batch of the first epoch: its validation is not lost
    (signal.SIGTERM, {"validation": 1}, 143, 7),
    (signal.SIGINT, {"sanity": True}, 130, 1),
])  # fmt: skip
def test_a_stopped_run_continues(number, where, status, step, tiny_config, trained, tmp_path, precis, in_a_process):
    run = tmp_path / "run"
    ended, said = in_a_process(*interrupted(tiny_config, run, number, **where))
    assert ended == status and "Traceback" not in said, said
    assert f"{signal.Signals(number).name}: finishing this step" in said
    command = f"precis fit --run {run} --trust"  # the config names a callback of the tests
    assert f"stopped after step {step}, saved {run}/checkpoints/last.ckpt; continue with: {command}\n" in said
    assert step_of(run / LAST) == step and (run / "checkpoints" / "best.ckpt").exists() == (step >= 7)
    if step == 4:  # the options of a refused start are not kept
        precis("fit", "--run", run, "--trust", "--data.batch_size", "3").refused("from the middle of an epoch")
    goes_on(said, run, trained, precis)


def test_the_rest_of_a_step_follows_a_validation_within_it(tiny_config, tmp_path, precis, in_a_process):
    options = ["--trainer.accumulate_grad_batches=3", "--trainer.val_check_interval=4"]
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert precis("fit", "--config", tiny_config, "--run_dir", whole, *options).status == 0
    status, output = in_a_process(*interrupted(tiny_config, run, signal.SIGTERM, *options, validation=0))
    # the validation comes after batch 4, the end of the step after batch 6
    assert status == 143 and step_of(run / LAST) == 2, output
    goes_on(output, run, whole, precis)


def test_a_second_signal_ends_it_and_ctrl_c_says_what_is_lost(tiny_config, trained, tmp_path, precis, in_a_process):
    run = tmp_path / "terminated"
    ended, said = in_a_process(*interrupted(tiny_config, run, signal.SIGTERM, batch=3, times=2))
    assert ended == -signal.SIGTERM and "Traceback" not in said, said
    assert not (run / LAST).exists() and "stopped after" not in said
    run = tmp_path / "run"
    ended, said = in_a_process(*interrupted(tiny_config, run, signal.SIGINT, "--save_every=2", batch=3, times=2))
    assert ended == 130, said
    assert said.index("Ctrl-C again ends at once, without saving") < said.index("SIGINT: ending at once")
    assert f"ended after step 3 without saving; the last checkpoint is {run}/checkpoints/last.ckpt" in said
    assert step_of(run / LAST) == 2
    goes_on(said, run, trained, precis, "--trainer.callbacks=[]")  # which would interrupt it again


def test_workers_of_the_data_say_nothing_of_a_signal(tmp_path, capfd):
    stop = GracefulStop(tmp_path / "last.ckpt")
    stop._listen()
    try:
        if not (worker := os.fork()):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(0)
        assert os.waitpid(worker, 0)[1] == 0 and capfd.readouterr().out == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert "SIGINT: finishing this step" in capfd.readouterr().out
    finally:
        stop._restore_handlers()


def test_signals_are_as_before_when_training_ends(tiny_config, tmp_path, precis):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for name, argument in (("good", "--model.dropout=0"), ("bad", "--trainer.callbacks+=interrupting.Broken")):
        done = precis("fit", "--config", tiny_config, "--run_dir", tmp_path / name, "--trainer.max_steps=1", argument)
        assert (done.status, "broken" in done.err) == ((0, False) if name == "good" else (1, True))
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
