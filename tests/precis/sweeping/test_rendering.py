"""A sweep as a file for other schedulers: valid YAML and shell, in which values are data."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from precis.sweeping.job import Job, read_status
from precis.sweeping.rendering import fill_template, find_template, shipped_templates

ROOT = Path(__file__).parents[3]
HOSTILE = """it's "quoted" $(touch stolen) `touch stolen` ${HOME} \\ ; touch stolen & %s
second line # - {{ sweep }}"""


def hostile_jobs(folder: Path) -> list[Job]:
    config = {"seed_everything": 1, "note": HOSTILE}
    after = ("test", "report {run}")
    return [Job(f"{HOSTILE} {number}", folder / f"point{number}", config, after) for number in (0, 1)]


@pytest.mark.parametrize("name", ["kubernetes", "skypilot"])
def test_rendered_yaml_has_every_value_as_it_is(name, tmp_path):
    folder = tmp_path / HOSTILE.replace("/", "")
    values = {"image": HOSTILE, "claim": HOSTILE, "workdir": HOSTILE, "accelerators": HOSTILE, "setup": HOSTILE}
    text = fill_template(find_template(name), HOSTILE, folder, hostile_jobs(folder), values)
    content = yaml.safe_load(text)
    if name == "skypilot":
        assert content["setup"] == HOSTILE and content["resources"]["accelerators"] == HOSTILE
        assert content["envs"] == {"POINT": "0"}
        assert "sky jobs launch --yes -d " in text  # without -d, each job of the loop waits for the one before
        return
    spec = content["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", 2)
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["workingDir"]) == (HOSTILE, HOSTILE)
    # Kubernetes replaces $(NAME) in commands, and $$ by $
    assert [word.replace("$$", "$") for word in container["command"]] == ["precis", "sweep", "point", str(folder)]
    assert "$" not in "".join(container["command"]).replace("$$", "")
    (volume,) = spec["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == HOSTILE
    name = content["metadata"]["name"]
    assert name.replace("-", "").isalnum() and name.islower() and len(name) <= 50


@pytest.mark.parametrize("name", ["kubernetes", "skypilot"])
def test_templates_need_no_values(name, tmp_path):
    content = yaml.safe_load(fill_template(find_template(name), "rows", tmp_path, hostile_jobs(tmp_path), {}))
    assert content["metadata" if name == "kubernetes" else "resources"]
    assert "file_mounts" not in content
    with_bucket = fill_template(find_template("skypilot"), "rows", tmp_path, [], {"outputs": "s3://runs"})
    assert yaml.safe_load(with_bucket)["file_mounts"] == {"/outputs": {"source": "s3://runs", "mode": "MOUNT"}}


def programs(folder: Path) -> Path:
    """Stand-ins of precis and torchrun that record their arguments."""
    folder.mkdir()
    script = f"#!{sys.executable}\nimport json, os, sys\nname = os.path.basename(sys.argv[0])\n"
    script += "with open(os.environ['CALLS'], 'a') as file:\n"
    script += "    file.write(json.dumps([name, *sys.argv[1:]]) + '\\n')\n"
    script += "sys.exit('--is_finished' in sys.argv or 'fail' in sys.argv)\n"
    for name in ("precis", "torchrun"):
        (folder / name).write_text(script)
        (folder / name).chmod(stat.S_IRWXU)
    return folder


def run_script(path: Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, **variables}
    return subprocess.run(["bash", str(path)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def test_the_shell_reads_no_value(tmp_path):
    """The scripts of both templates with a shell, over names that a shell would take apart or execute."""
    folder = Path("runs") / HOSTILE.replace("/", "")
    jobs = hostile_jobs(folder)
    path = {"PATH": f"{programs(tmp_path / 'bin')}:{os.environ['PATH']}"}
    script = tmp_path / "torchrun.sh"
    script.write_text(fill_template(find_template("torchrun"), HOSTILE, folder, jobs, {"processes": 3}))
    done = run_script(script, tmp_path, CALLS=str(tmp_path / "calls"), **path)
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    launcher = ["torchrun", "--standalone", "--nproc-per-node", "3", "-m", "--", "precis.command_line.cli"]
    expected = []
    for index, job in enumerate(jobs):
        (_, fit), (_, test), (_, report) = job.stages()
        point = ["precis", "sweep", "point", str(folder), "--index", str(index)]
        expected += [[*point, "--is_finished"], [*launcher, *fit], [*launcher, *test], ["precis", *report]]
        expected.append([*point, "--mark_finished"])
    assert calls == expected
    task = yaml.safe_load(fill_template(find_template("skypilot"), "rows", folder, jobs, {}))
    script.write_text(task["run"])
    assert run_script(script, tmp_path, CALLS=str(tmp_path / "task"), POINT="1 $(touch stolen)", **path).returncode == 0
    (call,) = map(json.loads, (tmp_path / "task").read_text().splitlines())
    assert call == ["precis", "sweep", "point", str(folder), "--index", "1 $(touch stolen)"]
    assert not list(tmp_path.rglob("stolen"))


def test_a_failed_point_does_not_stop_the_others(tmp_path):
    jobs = [Job("one", tmp_path / "one", {}, ("report fail",)), Job("two", tmp_path / "two", {})]
    script = tmp_path / "torchrun.sh"
    script.write_text(fill_template(find_template("torchrun"), "rows", tmp_path, jobs, {}))
    path = f"{programs(tmp_path / 'bin')}:{os.environ['PATH']}"
    done = run_script(script, tmp_path, CALLS=str(tmp_path / "calls"), PATH=path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "finished: two\n", "failed: one\n")


def test_a_tiny_point_runs_by_the_script(tmp_path, tiny_config, precis):
    """One real training by the rendered script with torchrun, then the same command again."""
    sweep, out = tmp_path / "tiny.yaml", tmp_path / "out"
    fixed = {"trainer.max_steps": 1, "trainer.limit_val_batches": 1, "trainer.devices": 1}
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "set": fixed, "seeds": [1], "after": ["test"]}))
    done = precis("sweep", "render", sweep, "--template", "torchrun", "--out", out)
    assert done.status == 0 and f"{out}/torchrun.sh: 1 point" in done.out, done.err
    (folder,) = [path.parent for path in out.glob("*/point.yaml")]
    assert json.loads(precis("sweep", "status", out, "--json").out)["counts"] == {"missing": 1}
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, module in {"precis": "precis.command_line.cli", "torchrun": "torch.distributed.run"}.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (binaries / name).chmod(stat.S_IRWXU)
    variables = {"PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = run_script(out / "torchrun.sh", ROOT, **variables)
    assert done.returncode == 0, done.stderr
    assert read_status(folder) == {"done": ["fit", "test"], "failed": None}
    assert (folder / "predictions.jsonl").is_file() and "finished: " in done.stdout
    assert "finished before: " in run_script(out / "torchrun.sh", ROOT, **variables).stdout
    # what a pod of Kubernetes does with a point that is finished
    done = precis("sweep", "point", out, "--index", 0)
    assert done.status == 0 and "1 point: 1 finished" in done.out


def test_bad_input_is_one_line_and_starts_nothing(tmp_path, tiny_config, precis, monkeypatch):
    sweep = tmp_path / "tiny.yaml"
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "seeds": [1]}))
    (tmp_path / "undefined.sh").write_text("echo {{ partition }}\n")
    (tmp_path / "broken.sh").write_text("echo\n{% for point in points %}\n")
    (tmp_path / "unsafe.sh").write_text("{{ points.__class__.__mro__ }}\n")
    out = tmp_path / "out"
    cases = [
        (["--template", "pbs"], ["no such file", "kubernetes, skypilot, torchrun"]),
        (["--template", tmp_path / "undefined.sh"], ["undefined.sh", "'partition' is undefined", "--values"]),
        (["--template", tmp_path / "broken.sh"], ["broken.sh:2", "correct the template"]),
        (["--template", tmp_path / "unsafe.sh"], ["unsafe.sh", "unsafe"]),
        (["--template", "torchrun", "--values", "{folder: x}"], ["folder are set by the sweep"]),
    ]
    for arguments, parts in cases:
        done = precis("sweep", "render", sweep, "--out", out, *arguments)
        assert done.status == 1 and done.err.count("\n") == 1, done.err
        assert all(part in done.err for part in parts), done.err
        assert not out.exists()
    keys = {"model.dropout": {"uniform": [0, 0.5]}}
    search = {"base": str(tiny_config), "search": {"trials": 2, "metric": "val/rouge1", "keys": keys}}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(search))
    done = precis("sweep", "render", tmp_path / "search.yaml", "--out", out, "--template", "torchrun")
    assert done.status == 1 and "its workers are `precis sweep work`" in done.err, done.err
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    assert precis("sweep", "render", sweep, "--out", out, "--template", "kubernetes").status == 0
    assert "--index is missing" in precis("sweep", "point", out).err
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert "no point 1; it has 1, from 0" in precis("sweep", "point", out).err
    assert "has no run" in precis("sweep", "point", out, "--index", 0, "--mark_finished").err
    assert precis("sweep", "point", out, "--index", 0, "--is_finished").status == 1


def test_a_template_of_your_own(tmp_path, tiny_config, precis):
    sweep, template = tmp_path / "tiny.yaml", tmp_path / "mine.sh"
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "seeds": [1, 2]}))
    command = "qsub -q {{ queue | sh }} precis sweep point {{ folder }} --index {{ p.index }}"
    template.write_text("{% for p in points %}" + command + "\n{% endfor %}")
    options = ["--template", template, "--out", tmp_path / "out", "--values", "{queue: long one}"]
    done = precis("sweep", "render", sweep, *options)
    assert done.status == 0, done.err
    lines = (tmp_path / "out" / "mine.sh").read_text().splitlines()
    assert lines == [f"qsub -q 'long one' precis sweep point {tmp_path / 'out'} --index {n}" for n in (0, 1)]
    shutil.copy(template, tmp_path / "out" / "mine.sh")
    done = precis("sweep", "render", sweep, "--template", tmp_path / "out" / "mine.sh", "--out", tmp_path / "out")
    assert done.status == 1 and "would be overwritten" in done.err


def test_all_templates_are_documented():
    text = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")
    assert all(f"--template {name}" in text for name in shipped_templates())
