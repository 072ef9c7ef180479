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
from conftest import write

from precis.sweeping.job import Job, read_status
from precis.sweeping.rendering import fill_template, find_template

ROOT = Path(__file__).parents[3]
HOSTILE = """it's "quoted" $(touch stolen) `touch stolen` ${HOME} \\ ; touch stolen & %s
second line # - {{ sweep }}"""


def hostile_jobs(folder: Path) -> list[Job]:
    config = {"seed_everything": 1, "note": HOSTILE}
    after = ("test", "predict")
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


def test_templates_need_no_values(tmp_path):
    for name, section in {"kubernetes": "metadata", "skypilot": "resources"}.items():
        content = yaml.safe_load(fill_template(find_template(name), "rows", tmp_path, hostile_jobs(tmp_path), {}))
        assert content[section] and "file_mounts" not in content
    with_bucket = fill_template(find_template("skypilot"), "rows", tmp_path, [], {"outputs": "s3://runs"})
    assert yaml.safe_load(with_bucket)["file_mounts"] == {"/outputs": {"source": "s3://runs", "mode": "MOUNT"}}


def write_program(path: Path, calls: Path) -> None:
    """Write a stand-in for a program, which adds its arguments to a file."""
    path.parent.mkdir(exist_ok=True)
    write = f"open({str(calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10))"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{write}\n")
    path.chmod(stat.S_IRWXU)


def test_the_shell_reads_no_value(tmp_path):
    """The command of SkyPilot, over names that a shell would take apart or execute."""
    folder = Path("runs") / HOSTILE.replace("/", "")
    program, calls = tmp_path / "bin" / "precis", tmp_path / "calls"
    write_program(program, calls)
    task = yaml.safe_load(fill_template(find_template("skypilot"), "rows", folder, hostile_jobs(folder), {}))
    variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", "POINT": "1 $(touch stolen)"}
    assert subprocess.run(["bash", "-c", task["run"]], cwd=tmp_path, env=os.environ | variables).returncode == 0
    assert json.loads(calls.read_text()) == ["sweep", "point", str(folder), "--index", "1 $(touch stolen)"]
    assert not list(tmp_path.rglob("stolen"))


def test_jobs_of_ray_get_their_folder_as_it_is(tmp_path):
    """The requests to Ray, whose entry point a shell reads."""
    folder = Path("runs") / HOSTILE.replace("/", "")
    script, calls = tmp_path / "ray.sh", tmp_path / "calls"
    script.write_text(fill_template(find_template("ray"), HOSTILE, folder, hostile_jobs(folder), {"gpus": 2}))
    for name in ("curl", "precis"):
        write_program(tmp_path / name, calls)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_ADDRESS": "http://head:8265"}
    assert subprocess.run(["sh", script], cwd=tmp_path, env=environment).returncode == 0
    requests = [json.loads(line) for line in calls.read_text().splitlines()]
    assert all("http://head:8265/api/jobs/" in request for request in requests) and len(requests) == 2
    for index, request in enumerate(requests):
        job = json.loads(request[-1])
        assert (job["entrypoint_num_gpus"], job["entrypoint_num_cpus"]) == (2, 4)
        assert subprocess.run(["sh", "-c", job["entrypoint"]], cwd=tmp_path, env=environment).returncode == 0
        called = json.loads(calls.read_text().splitlines()[-1])
        assert called == ["sweep", "point", str(folder), "--index", str(index)]
    assert not list(tmp_path.rglob("stolen"))


@pytest.mark.integration
def test_a_pod_of_kubernetes_trains_its_point_once(tmp_path, tiny_config, precis, monkeypatch):
    sweep, out = tmp_path / "tiny.yaml", tmp_path / "out"
    fixed = {"trainer.max_steps": 1, "trainer.limit_val_batches": 1, "trainer.devices": 1}
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "set": fixed, "seeds": [1], "after": ["test"]}))
    done = precis("sweep", "render", sweep, "--template", "kubernetes", "--out", out)
    assert done.status == 0 and f"{out}/kubernetes.yaml: 1 point" in done.out, done.err
    (folder,) = [path.parent for path in out.glob("*/point.yaml")]
    assert json.loads(precis("sweep", "status", out, "--json").out)["counts"] == {"missing": 1}
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    assert precis("sweep", "point", out).status == 0
    assert read_status(folder) == {"done": ["fit", "test"], "failed": None}
    assert (folder / "predictions.jsonl").is_file()
    done = precis("sweep", "point", out)
    assert done.status == 0 and "finished before" in done.out and "1 point: 1 finished" in done.out


@pytest.mark.integration
def test_bad_input_is_one_line_and_starts_nothing(tmp_path, tiny_config, precis, monkeypatch):
    sweep = write(tmp_path / "tiny.yaml", {"base": str(tiny_config), "seeds": [1]})
    (tmp_path / "broken.sh").write_text("echo\n{% for point in points %}\n")
    (tmp_path / "unsafe.sh").write_text("{{ points.__class__.__mro__ }}\n")
    out = tmp_path / "out"
    cases = [
        (["--template", "pbs"], ["no such file", "kubernetes, ray, skypilot"]),
        (["--template", tmp_path / "broken.sh"], ["broken.sh:2", "correct the template"]),
        (["--template", tmp_path / "unsafe.sh"], ["unsafe.sh", "unsafe"]),
    ]
    for arguments, parts in cases:
        precis("sweep", "render", sweep, "--out", out, *arguments).failed_in_one_line(*parts)
        assert not out.exists()
    keys = {"model.dropout": {"uniform": [0, 0.5]}}
    search = {"base": str(tiny_config), "search": {"trials": 2, "metric": "val/rouge1", "keys": keys}}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(search))
    done = precis("sweep", "render", tmp_path / "search.yaml", "--out", out, "--template", "skypilot")
    done.refused("its workers are `precis sweep work`")
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    assert precis("sweep", "render", sweep, "--out", out, "--template", "kubernetes").status == 0
    assert "--index is missing" in precis("sweep", "point", out).err
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert "no point 1; it has 1, from 0" in precis("sweep", "point", out).err


def test_a_template_of_your_own(tmp_path, tiny_config, precis):
    sweep, template = tmp_path / "tiny.yaml", tmp_path / "mine.sh"
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "seeds": [1, 2]}))
    command = "qsub -q {{ queue | sh }} precis sweep point {{ folder }} --index {{ p.index }}"
    template.write_text("{% for p in points %}" + command + "\n{% endfor %}")
    options = ["--template", template, "--out", tmp_path / "out", "--values", "{queue: long one}"]
    precis("sweep", "render", sweep, *options).succeeded()
    lines = (tmp_path / "out" / "mine.sh").read_text().splitlines()
    assert lines == [f"qsub -q 'long one' precis sweep point {tmp_path / 'out'} --index {n}" for n in (0, 1)]
    shutil.copy(template, tmp_path / "out" / "mine.sh")
    done = precis("sweep", "render", sweep, "--template", tmp_path / "out" / "mine.sh", "--out", tmp_path / "out")
    assert done.status == 1 and "would be overwritten" in done.err
