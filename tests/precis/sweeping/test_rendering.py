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
from conftest import write, write_sweep

from precis.sweeping.job import Job, read_status
from precis.sweeping.rendering import fill_template, find_template

HOSTILE = """it's "quoted" $(touch stolen) `touch stolen` ${HOME} \\ ; touch stolen & %s
second line # - {{ sweep }}"""


def render(name: str, folder: Path, **values: object) -> str:
    config = {"seed_everything": 1, "note": HOSTILE}
    jobs = [Job(f"{HOSTILE} {n}", folder / f"point{n}", config, ("test", "predict")) for n in (0, 1)]
    return fill_template(find_template(name), HOSTILE, folder, jobs, values)


def test_rendered_yaml_has_every_value_as_it_is(tmp_path):
    folder = tmp_path / HOSTILE.replace("/", "")
    values = dict.fromkeys(("image", "claim", "workdir", "accelerators", "setup"), HOSTILE)
    text = render("skypilot", folder, **values)
    content = yaml.safe_load(text)
    assert content["setup"] == HOSTILE and content["resources"]["accelerators"] == HOSTILE
    assert content["envs"] == {"POINT": "0"} and content["file_mounts"] == {"~/points.json": f"{folder}/points.json"}
    assert "sky jobs launch --yes -d " in text  # without -d, each job of the loop waits for the one before

    content = yaml.safe_load(render("kubernetes", folder, **values))
    spec = content["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", 2)
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["workingDir"]) == (HOSTILE, HOSTILE)
    # Kubernetes replaces $(NAME) in commands, and $$ by $
    assert [word.replace("$$", "$") for word in container["command"]] == ["precis", "sweep", "point", str(folder)]
    assert "$" not in "".join(container["command"]).replace("$$", "")
    assert [each["persistentVolumeClaim"]["claimName"] for each in spec["template"]["spec"]["volumes"]] == [HOSTILE]
    name = content["metadata"]["name"]
    assert name.replace("-", "").isalnum() and name.islower() and len(name) <= 50

    mounts = yaml.safe_load(render("skypilot", tmp_path, outputs="s3://runs"))["file_mounts"]
    assert mounts["/outputs"] == {"source": "s3://runs", "mode": "MOUNT"}


def test_the_shells_of_skypilot_and_ray_read_no_value(tmp_path):
    """The commands are executed over names that a shell would take apart or execute; programs record their words."""
    folder, calls = Path("runs") / HOSTILE.replace("/", ""), tmp_path / "calls"
    record = f"open({str(calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + chr(10))"
    for name in ("curl", "precis"):
        write(tmp_path / name, f"#!{sys.executable}\nimport json, sys\n{record}\n").chmod(stat.S_IRWXU)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RAY_ADDRESS": "http://head:8265"}
    environment["HOME"] = str(write(tmp_path / "points.json", "{}").parent)

    def recorded(*command: object, **variables: str) -> list[list[str]]:
        assert subprocess.run(command, cwd=tmp_path, env=environment | variables).returncode == 0
        return [json.loads(line) for line in calls.read_text().splitlines()]

    (called,) = recorded("bash", "-c", yaml.safe_load(render("skypilot", folder))["run"], POINT="1 $(touch stolen)")
    assert called == ["sweep", "point", str(folder), "--index", "1 $(touch stolen)"]
    assert (tmp_path / folder / "points.json").read_text() == "{}"
    calls.unlink()
    requests = recorded("sh", write(tmp_path / "ray.sh", render("ray", folder, gpus=2)))
    assert all("http://head:8265/api/jobs/" in request for request in requests) and len(requests) == 2
    for index, request in enumerate(requests):
        job = json.loads(request[-1])
        assert (job["entrypoint_num_gpus"], job["entrypoint_num_cpus"]) == (2, 4) and "STOP_WAIT" in str(job)
        called = recorded("sh", "-c", job["entrypoint"])[-1]
        assert called == ["sweep", "point", str(folder), "--index", str(index)]
    assert not list(tmp_path.rglob("stolen"))


@pytest.mark.integration
def test_a_pod_of_kubernetes_trains_its_point_once(tmp_path, tiny_config, precis, monkeypatch):
    out, fixed = tmp_path / "out", {"trainer.max_steps": 1, "trainer.limit_val_batches": 1, "trainer.devices": 1}
    sweep = write_sweep(tmp_path, tiny_config, set=fixed, seeds=[1], after=["test"])
    done = precis("sweep", "render", sweep, "--template", "kubernetes", "--out", out)
    assert f"{out}/kubernetes.yaml: 1 point" in done.succeeded().out
    assert json.loads(precis("sweep", "status", out, "--json").out)["counts"] == {"missing": 1}
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    assert "--index is missing" in precis("sweep", "point", out).err
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert "no point 1; it has 1, from 0" in precis("sweep", "point", out).err
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    precis("sweep", "point", out).succeeded()
    (predictions,) = out.glob("*/predictions.jsonl")
    assert read_status(predictions.parent) == {"done": ["fit", "test"], "failed": None}
    done = precis("sweep", "point", out).succeeded()
    assert "finished before" in done.out and "1 point: 1 finished" in done.out


def test_bad_input_is_one_line_and_a_template_of_your_own_is_filled(tmp_path, tiny_config, precis):
    sweep, out = write_sweep(tmp_path, tiny_config, seeds=[1, 2]), tmp_path / "out"
    broken = write(tmp_path / "broken.sh", "echo\n{% for point in points %}\n")
    for template, parts in (
        ("pbs", ["no such file", "kubernetes, ray, skypilot"]),
        (broken, ["broken.sh:2", "correct the template"]),
        (write(tmp_path / "unsafe.sh", "{{ points.__class__.__mro__ }}\n"), ["unsafe.sh", "unsafe"]),
    ):
        precis("sweep", "render", sweep, "--out", out, "--template", template).failed_in_one_line(*parts)
    assert not out.exists()

    command = "qsub -q {{ queue | sh }} precis sweep point {{ folder }} --index {{ p.index }}"
    template = write(tmp_path / "mine.sh", "{% for p in points %}" + command + "\n{% endfor %}")
    options = ["--template", template, "--out", out, "--values", "{queue: long one}"]
    precis("sweep", "render", sweep, *options).succeeded()
    lines = (out / "mine.sh").read_text().splitlines()
    assert lines == [f"qsub -q 'long one' precis sweep point {out} --index {n}" for n in (0, 1)]
    shutil.copy(template, out / "mine.sh")
    precis("sweep", "render", sweep, "--template", out / "mine.sh", "--out", out).refused("would be overwritten")
