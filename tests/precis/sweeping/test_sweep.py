import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml
from conftest import read_lines, wait_until, write, write_sweep
from stub_command import write_stub

from datamodules.documents import UserError
from precis.config.run_config import format_value
from precis.sweeping.composition import compose
from precis.sweeping.grid import points_of, read_sweep
from precis.sweeping.job import Job, is_finished, read_status
from precis.sweeping.launch import launch, run_environment
from precis.sweeping.slurm import Profile, checked_profile
from precis.training.training import fit_parser

ROOT = Path(__file__).parents[3]


def jobs_of(folder: Path, *names: str) -> list[Job]:
    return [Job(name, folder / name, {"name": name}) for name in names]


def commands_in(job: Job) -> list[str]:
    return [line.split()[2] for line in job.log.read_text().splitlines() if line.startswith("$ precis")]


def test_points_are_the_product_written_out_by_hand_and_composed_as_by_the_command_line(tmp_path, tiny_config, precis):
    fixed = {"trainer.max_epochs": 1, "model.dropout": 0.5}
    rows = {"copy": {"model.pointer": True}, "": {"model.pointer": False, "model.dropout": 0.0}}
    path = write_sweep(
        tmp_path, tiny_config, set=fixed, seeds=[1, 2, 3],
        grid={"model.coverage": [True, False], "model.hidden_size": [8, 12]},
        zip={"data.max_source": [20, 30], "data.batch_size": [4, 2]},
        points=[{"name": "copy"} | rows["copy"], rows[""]],
    )  # fmt: skip
    expected, labels = [], []
    values = product(("true", "false"), (8, 12), ((20, 4), (30, 2)), rows.items(), (1, 2, 3))
    for coverage, hidden, (source, size), (name, row), seed in values:
        varied = {"model.coverage": coverage == "true", "model.hidden_size": hidden}
        varied |= {"data.max_source": source, "data.batch_size": size}
        expected.append(fixed | varied | row | {"seed_everything": seed})
        axes = f"coverage={coverage} hidden_size={hidden} max_source={source} batch_size={size}"
        labels.append(f"{name} {axes} seed={seed}" if name else f"{axes} pointer=false dropout=0.0 seed={seed}")
    points = points_of(read_sweep(path))
    assert [point.overrides for point in points] == expected
    assert [point.label for point in points] == labels
    assert [format_value(text) for text in ("torch.optim.SGD", "a.jsonl")] == ["SGD", "a.jsonl"]
    overrides = {"model.coverage": False, "trainer.callbacks": None}
    overrides |= {"optimizer": "torch.optim.SGD", "optimizer.lr": "1e-2"}
    (point,) = compose(read_sweep(write_sweep(tmp_path, tiny_config, points=[overrides], seeds=[7])))
    flags = "--model.coverage=false --trainer.callbacks=null --optimizer=torch.optim.SGD --optimizer.lr=0.01"
    printed = precis("fit", "--config", tiny_config, *flags.split(), "--seed_everything=7", "--print_config")
    composed, typed = point.config, yaml.safe_load(printed.out)
    assert typed["model"] == composed["model"] and typed["optimizer"] == composed["optimizer"]
    assert composed["optimizer"]["init_args"]["lr"] == 0.01 and composed["seed_everything"] == 7
    assert composed["trainer"]["callbacks"] is None


@pytest.mark.integration
def test_a_point_keeps_its_folder_whatever_other_points_there_are(tmp_path, tiny_config):
    def configs(**parts) -> dict[str, dict]:
        return {point.name: point.config for point in compose(read_sweep(write_sweep(tmp_path, tiny_config, **parts)))}

    alone = {"grid": {"model.coverage": [True]}, "seeds": [1]}
    few, many = configs(**alone), configs(grid={"model.coverage": [False, True]}, seeds=[2, 1])
    assert len(many) == 4 and few.items() <= many.items()  # also those that share their parse with others
    other = configs(set={"model.dropout": 0.3}, **alone)
    assert other.keys() != few.keys()
    assert all(name.startswith("coverage-true_seed-1_") for name in (*few, *other))
    assert configs(set={"trainer.gradient_clip_val": 2.0}, **alone) == few  # stated or not, the config is the same


@pytest.mark.parametrize(("parts", "message"), [
    ({"grid": {"model.coverge": [True]}}, "point 'coverge=true': model: PointerGenerator has no option 'coverge'"),
    ({"grid": {"model.dropout": [0.1, 0.1]}}, "'dropout=0.1' and 'dropout=0.1' are the same run"),
    ({"gird": {"model.dropout": [0.1]}}, "unknown key 'gird'"),
    ({"zip": {"model.dropout": [0.1], "model.hidden_size": [4, 8]}}, "lists of different lengths in zip"),
    ({"grid": {"model.dropout": [0.1]}, "points": [{"model.dropout": 0.2}]}, "model.dropout varies in two places"),
    ({"grid": {"run_dir": ["a", "b"]}}, "run_dir is set by the sweep for each run"),
    ({"set": {"model.dropout": 0.2}, "grid": {"model.dropout": [0.1, 0.2]}}, "is in set and in grid; keep one of them"),
    ({"seeds": [1], "after": ["tset"]}, "after: 'tset' is not a command"),
])  # fmt: skip
def test_a_wrong_file_is_named_with_its_point_and_nothing_is_written(parts, message, tmp_path, tiny_config, precis):
    path, out = write_sweep(tmp_path, tiny_config, **parts), tmp_path / "out"
    precis("sweep", path, "--out", out).failed_in_one_line(f"{path}: ", message)
    assert not out.exists()


@pytest.mark.integration
def test_absent_weights_are_named(tmp_path, tiny_config, run_folder, precis):
    run_folder.rename(tmp_path / "run_1")
    start = {"start_from": f"{tmp_path}/run_{{seed}}"}
    precis("sweep", write_sweep(tmp_path, tiny_config, set=start, seeds=[1]), "--dry-run").succeeded()
    path = write_sweep(tmp_path, tiny_config, set=start, seeds=[1, 2])
    precis("sweep", path, "--dry-run").failed_in_one_line("run_2: no such checkpoint")


def test_dry_run_prints_commands_that_make_the_points_and_writes_nothing(tmp_path, tiny_config, precis):
    # commands after fit get the run
    job = Job("one", tmp_path, {}, after=("test --data.max_eval 5", "evaluate {run}/predictions.jsonl", "report"))
    expected = ["test --run {} --data.max_eval 5", "evaluate {}/predictions.jsonl", "report {}"]
    assert [words for _, words in job.stages()][1:] == [command.format(tmp_path).split() for command in expected]
    path, out = write_sweep(tmp_path, tiny_config, grid={"model.pointer": [True, False]}), tmp_path / "out"
    lines = precis("sweep", path, "--dry-run", "--out", out).succeeded().out.splitlines()
    assert not out.exists() and lines[-1] == "2 points: 0 finished, 2 to run"
    fits, tests = ([line for line in lines if line.startswith(f"precis {name} ")] for name in ("fit", "test"))
    for point, fit, test in zip(compose(read_sweep(path)), fits, tests, strict=True):
        typed = fit_parser().parse_args(shlex.split(fit)[2:])
        assert Path(typed.run_dir) == out / point.name
        assert typed.model.init_args.pointer == point.config["model"]["init_args"]["pointer"]
        assert test == f"precis test --run {out / point.name}"


@pytest.mark.integration
def test_a_failure_stops_no_other_and_a_second_launch_runs_missing_points(tmp_path, capsys):
    stub = write_stub(tmp_path)
    jobs = jobs_of(tmp_path / "out", "one", "break", "nottest", "two")
    with pytest.raises(UserError, match=r"2 of 4 points failed; the first is '\w+', see .*log.txt"):
        launch(jobs, 2, stub)
    shown = capsys.readouterr().out
    assert "break: failed: it broke" in shown and "4 points" in shown
    one, broken, untested, two = jobs
    assert [is_finished(job) for job in jobs] == [True, False, False, True]
    assert commands_in(one) == commands_in(two) == commands_in(untested) == ["fit", "test"]
    assert read_status(broken.folder) == {"done": [], "failed": {"command": "fit", "status": 1}}
    assert read_status(untested.folder) == {"done": ["fit"], "failed": {"command": "test", "status": 1}}

    mended = [one, Job("break", broken.folder, {"name": "mended"}), Job("nottest", untested.folder, {}, after=()), two]
    launch(mended, 2, stub)
    assert commands_in(one) == commands_in(two) == commands_in(untested) == ["fit", "test"]
    assert commands_in(broken) == ["fit", "fit", "test"] and "started fit resumed" not in broken.log.read_text()
    assert "finished before" in capsys.readouterr().out


def test_runs_at_a_time_share_cores_and_gpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert "CUDA_VISIBLE_DEVICES" not in run_environment(0, 1)
    two = [run_environment(slot, 2) for slot in range(2)]
    assert [(one["CUDA_VISIBLE_DEVICES"], one["OMP_NUM_THREADS"]) for one in two] == [("0,2", "3"), ("1,3", "3")]
    assert [run_environment(slot, 5)["CUDA_VISIBLE_DEVICES"] for slot in range(5)] == ["0", "1", "2", "3", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    assert run_environment(1, 2)["CUDA_VISIBLE_DEVICES"] == "7"


@pytest.mark.integration
def test_ctrl_c_lets_runs_save_and_the_next_launch_continues_where_no_other_one_runs(tmp_path):
    stub = write_stub(tmp_path)
    jobs = jobs_of(tmp_path / "out", "wait", "later")
    imports = "from pathlib import PosixPath; from precis.sweeping.launch import Job, launch"
    command = [sys.executable, "-c", f"{imports}; launch({jobs!r}, 1, {stub!r})"]
    launcher = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, text=True)
    wait_until((jobs[0].folder / "waits").exists)
    os.killpg(launcher.pid, signal.SIGINT)  # as a terminal sends it: to the whole group
    out, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 130 and "1 stopped, 1 waiting" in out and "the same command continues" in out
    assert (jobs[0].folder / "checkpoints" / "last.ckpt").read_text() == "half way"
    assert not jobs[1].folder.exists()
    launch(jobs, 1, stub)
    assert all(map(is_finished, jobs))
    started = [line for line in jobs[0].log.read_text().splitlines() if line.startswith("started")]
    assert started == ["started fit anew", "started fit resumed", "started test anew"]

    # a run that another launch runs is left alone
    first, second = jobs_of(tmp_path / "other", "taken", "free")
    first.folder.mkdir(parents=True)
    with (first.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"taken: another launch is running"):
            launch([first, second], 1, stub)
    assert is_finished(second) and not first.log.exists()
    launch([first, second], 1, stub)
    assert is_finished(first)


@pytest.mark.integration
def test_a_real_run_is_trained_tested_and_not_repeated(tmp_path, tiny_config, precis):
    fixed = {"trainer.max_steps": 2, "data.max_eval": 3}
    path, out = write_sweep(tmp_path, tiny_config, set=fixed, grid={"model.coverage": [False]}), tmp_path / "out"
    precis("sweep", path, "--out", out).succeeded()
    (point,) = json.loads((out / "points.json").read_text())["points"]
    assert (out / "sweep.yaml").read_text() == path.read_text()
    run = out / point["run"]
    assert yaml.safe_load((run / "config.yaml").read_text())["model"]["init_args"]["coverage"] is False
    rows = read_lines(run / "predictions.jsonl")
    assert len(rows) == 3 and all("rouge1" in row["scores"] for row in rows)
    assert json.loads((run / "predictions.signatures.json").read_text())["rouge1"].startswith("rouge1|stem:porter|")
    assert not (Path.cwd() / "config.yaml").exists()
    log = (run / "log.txt").read_text()
    precis("sweep", path, "--out", out).succeeded()
    assert (run / "log.txt").read_text() == log
    assert precis("sweep", path, "--out", out, "--dry-run").out.endswith("1 point: 1 finished, 0 to run\n")


@pytest.mark.integration
def test_a_sweep_runs_on_a_file_system_without_locks(tmp_path, tiny_config, precis, monkeypatch):
    patch = "import fcntl\ndef flock(*_):\n    raise OSError(37, 'No locks available')\nfcntl.flock = flock\n"
    monkeypatch.setattr(fcntl, "flock", fcntl.flock)  # so that it is restored
    exec(patch, {})
    monkeypatch.setenv("PYTHONPATH", str(write(tmp_path / "sitecustomize.py", patch).parent))
    monkeypatch.setattr("datamodules.file_locks._without_locks", set())
    path = write_sweep(tmp_path, tiny_config, set={"trainer.max_steps": 1}, grid={"seed_everything": [1]}, after=[])
    with pytest.warns(UserWarning) as warned:
        precis("sweep", path, "--out", out := tmp_path / "out").succeeded()
    run = next(out.glob("*/checkpoints/last.ckpt")).parents[1]
    warnings = "".join(str(warning.message) for warning in warned)
    for output, lock in ((warnings, out / ".launcher.lock"), ((run / "log.txt").read_text(), run / ".fit.lock")):
        assert output.count("without locks") == 1 and f"{lock}: cannot be locked (No locks available)" in output


def test_a_line_end_stays_in_its_comment_and_is_refused_in_a_profile(tmp_path, tiny_config, precis):
    """The output of a dry run may go to a shell."""
    hostile = f"line\ntouch {tmp_path / 'ran'}\n#"
    path = write_sweep(tmp_path, tiny_config, grid={"wandb_project": [hostile, "plain"]}, after=[])
    done = precis("sweep", path, "--out", tmp_path / "out", "--dry-run")
    assert done.status == 0 and "# wandb_project=line\\ntouch" in done.out
    # precis is no command here, and the last line, a count, is none anywhere
    script = "precis() { printf '%s|' \"$@\"; echo; }\n" + done.out.rsplit("\n", 2)[0]
    shell = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert not (tmp_path / "ran").exists() and f"--wandb_project={hostile}|" in shell.stdout

    for profile, where in (
        (Profile(directives={"comment": "a\ntouch ran"}), "directives.comment"),
        (Profile(directives={"comment\ntouch ran #": "a"}), "directives: 'comment"),
        (Profile(directives={"comment": ["a\ntouch ran"]}), "directives.comment must be one value"),
        (Profile(partition="debug\ntouch ran"), "partition"),
    ):
        with pytest.raises(UserError, match=f"profile: {where}"):
            checked_profile(profile)
