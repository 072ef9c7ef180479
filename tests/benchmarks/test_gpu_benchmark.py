"""The GPU benchmark in its tiny form on a CPU: every part, a second call, failures, packed data, missing packages."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from cases import CASES
from safetensors.torch import load_file
from tiny_models import make_summarizer
from transformers import LEDForConditionalGeneration

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import training
from benchmarks.gpu.cells import LOST_GPU, RUNNING, Cell, read_record, record_interrupted, run_cells
from benchmarks.gpu.made_up import entries
from benchmarks.gpu.pack import Pack, first_batches, read_pack, write_pack
from benchmarks.gpu.pack import main as pack_command
from benchmarks.gpu.wheels import download_command, missing, names_in

ROOT = Path(__file__).parents[2]
WITHOUT = ("datasets", "wandb", "jsonargparse", "rouge_score", "datasketch", "peft")
# as on a machine that lacks these packages: nothing finds them
BLOCKED = f"""
import importlib.machinery as m, sys
find = m.PathFinder.find_spec
m.PathFinder.find_spec = classmethod(
    lambda cls, name, *rest: None if name.split(".")[0] in {WITHOUT!r} else find(name, *rest))
import benchmarks.gpu.__main__ as command
for part in ("attention", "models", "training"):
    sys.argv = [*ARGUMENTS, "--part", part]
    if command.main():
        sys.exit(1)
"""


def make_pack(name: str, files, path: Path) -> Pack:
    """Pack the data of a tiny model."""
    case = next(case for case in CASES if case.name == name)
    data = case.build_data(files)
    data.prepare_data()
    data.setup("fit")
    loaders = {"train": data.train_dataloader(), "val": data.val_dataloader()}
    arguments = {k: vars(v) if hasattr(v, "__dataclass_fields__") else v for k, v in case.model_args.items()}
    model = {"class_path": case.model, "init_args": arguments}
    pack = Pack({split: first_batches(loader, 8) for split, loader in loaders.items()}, data.tokenizer, model)
    write_pack(path, pack)
    return pack


@pytest.fixture(scope="module")
def packs(corpus_files, tmp_path_factory) -> Path:
    """A folder with packed files of three models."""
    folder = tmp_path_factory.mktemp("packs")
    for name in ("rstformer", "pointer-coverage", "bertsum"):
        make_pack(name, corpus_files, folder / f"{name}.safetensors")
    return folder


def test_every_part_runs_without_the_packages_of_the_full_environment(packs, tmp_path):
    arguments = ["gpu", "--tiny", "--out", str(tmp_path), "--data", str(packs), "--device", "cpu"]
    arguments += ["--worker", "0", str(time.time() + 1000)]
    code = f"ARGUMENTS = {arguments!r}\n{BLOCKED}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    for part, count in {"attention": 13, "models": 27, "training": 5}.items():
        records = [read_record(path.parent, path.stem) for path in (tmp_path / part).glob("*.json")]
        assert [(r["name"], r["traceback"]) for r in records if "error" in r] == []
        assert len(records) == count
    options = SimpleNamespace(out=tmp_path, device="cpu")
    assert command.summarize(options) == 0
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "| rstformer | bf16 |" in summary and "| rstformer | product | 1 | 2 |" in summary
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_the_plan_and_the_part_that_runs_tests(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--dry-run", "--out", str(tmp_path)])
    assert command.main() == 0
    plan = capsys.readouterr().out
    assert "estimated" in plan and "attention-16384-1024-product" in plan and "rstformer-public" in plan
    monkeypatch.setattr(sys, "argv", ["gpu", "--tiny", "--part", "tests", "--out", str(tmp_path), "--device", "cpu"])
    assert command.main() == 0
    assert read_record(tmp_path / "tests", "tiny")["result"]["tests"] == 3
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path), "--device", "cpu"])
    with pytest.raises(SystemExit):
        command.main()


def test_failed_cells_are_recorded_and_tried_again_and_finished_ones_are_not(tmp_path):
    runs = []

    def cell(name: str, *errors: Exception | None) -> Cell:
        def run():
            runs.append(name)
            error = errors[runs.count(name) - 1]
            if error:
                raise error
            return {"value": 1}

        return Cell(name, 1.0, run)

    cells = [cell("a", None), cell("b", ValueError("no"), None), cell("c", RuntimeError("CUDA error: lost"), None)]
    long = Cell("long", 1e6, lambda: runs.append("long"))
    started, until = time.time(), time.time() + 100
    assert run_cells([*cells, long], tmp_path, started, until) == LOST_GPU
    assert runs == ["a", "b", "c"]
    assert "ValueError: no" in read_record(tmp_path, "b")["traceback"]
    assert run_cells([*cells, long], tmp_path, started, until) == 0  # the next process of the same call
    assert runs == ["a", "b", "c"] and read_record(tmp_path, "long") is None
    assert run_cells(cells, tmp_path, time.time(), until) == 0  # a second call
    assert runs == ["a", "b", "c", "b", "c"] and read_record(tmp_path, "c")["result"] == {"value": 1}
    (tmp_path / RUNNING).write_text("d", encoding="utf-8")
    record_interrupted(tmp_path, "the process ended with status -9")
    assert read_record(tmp_path, "d")["error"] == "the process ended with status -9"


def test_a_worker_and_its_children_end_with_the_time_of_the_part(tmp_path):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    started = time.monotonic()
    assert command.run_worker([sys.executable, "-c", child], 0.5) is None
    assert time.monotonic() - started < 30
    assert command.run_worker([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3


def test_ctrl_c_leaves_a_summary_and_what_was_measured(tmp_path, monkeypatch, capsys):
    def run_part(part, arguments, started, until):
        run_cells([Cell("limits", 1, lambda: {"tflops": 1.0, "tbytes": 2.0})], tmp_path / part, started, until)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_part", run_part)
    arguments = ["gpu", "--tiny", "--part", "attention", "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert command.main() == 130
    assert "the same command continues" in capsys.readouterr().err
    assert "1 TFLOP/s, 2 TB/s" in (tmp_path / "summary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["rstformer", "pointer-coverage", "bertsum", "matchsum", "graphsum", "pegasus"])
def test_a_packed_file_gives_back_its_batches(name, corpus_files, tmp_path):
    pack = make_pack(name, corpus_files, tmp_path / "a.safetensors")
    again = read_pack(tmp_path / "a.safetensors")
    assert again.tokenizer.state() == pack.tokenizer.state() and again.model == json.loads(json.dumps(pack.model))
    for split, batches in pack.batches.items():
        for one, other in zip(batches, again.batches[split], strict=True):
            assert type(one) is type(other)
            for field, value in vars(one).items():
                twin = getattr(other, field)
                if isinstance(value, torch.Tensor):
                    assert torch.equal(value, twin), field
                else:
                    assert json.dumps(value) == json.dumps(twin), field
    with pytest.raises(ValueError, match=r"MiB, more than 0\.001: lower --train"):
        write_pack(tmp_path / "b.safetensors", pack, max_mib=0.001)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_the_command_packs_a_pretrained_led_with_its_weights(corpus_files, tmp_path, monkeypatch):
    led = make_summarizer("led", tmp_path / "led", [Path(corpus_files["train"]).read_text(encoding="utf-8")], window=64)
    whole = load_file(led / "model.safetensors")
    model = {"class_path": "lightning_modules.RSTformer", "init_args": {"checkpoint": str(led), "vocab_size": 500}}
    model["init_args"]["decoding"] = {"beam_size": 2, "min_length": 1, "max_length": 20}
    corpus = {"class_path": "datamodules.corpora.Files", "init_args": corpus_files}
    data = {"corpus": corpus, "parser": "right_branching", "max_source": 40, "max_target": 20, "half_width": 8}
    data = {"class_path": "datamodules.RSTformerData", "init_args": data | {"batch_size": 4}}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"model": model, "data": data}), encoding="utf-8")
    path = tmp_path / "packs" / "led.safetensors"
    arguments = ["pack", "--out", path, "--train", 8, "--val", 4, "--config", config]
    monkeypatch.setattr(sys, "argv", list(map(str, [*arguments, "--weights"])))
    assert pack_command() == 0
    shutil.rmtree(led)  # as on another machine
    pack = read_pack(path)
    assert [sum(batch.batch_size for batch in pack.batches[split]) for split in ("train", "val")] == [8, 4]
    for name, tensor in whole.items():
        torch.testing.assert_close(pack.pretrained[1][name].float(), tensor, rtol=2**-8, atol=0)
    outcome = training.train(path, {"injection": "log_bias"}, seed=1, steps=2, device="cpu")
    assert outcome["documents_per_second"] > 0
    folder = training.pretrained_folder(path)
    loaded = LEDForConditionalGeneration.from_pretrained(folder).state_dict()["led.shared.weight"]
    assert loaded.dtype == torch.float32 and torch.equal(loaded, pack.pretrained[1]["led.shared.weight"].float())


def test_models_of_the_benchmark_have_the_sizes_of_the_papers():
    large = entries(tiny=False)
    with torch.device("meta"):
        models = {name: large[name].build() for name in ("bertsum", "led", "pegasus")}
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    assert 100e6 < sizes["bertsum"] < 130e6 and 400e6 < sizes["led"] < 520e6 and 500e6 < sizes["pegasus"] < 620e6


def test_without_packed_data_the_part_says_so(capsys):
    assert training.cells(SimpleNamespace(data=None)) == []
    assert "no packed data" in capsys.readouterr().out


def test_wheels_are_those_of_missing_packages():
    have = names_in(["Package    Version", "torch      2.11.0", "PyYAML==6.0", "pytorch_lightning 2.6", "", "# x"])
    assert {"torch", "pyyaml", "pytorch-lightning"} <= have
    packages = missing("precis-suite", have)
    assert {"datasets", "jsonargparse", "dill", "multiprocess", "typeshed-client"} <= set(packages)
    assert not have & set(packages) and "hypothesis" not in packages
    assert "hypothesis" in missing("precis-suite", have, ["test"])
    line = " ".join(download_command(["dill"], Path("w"), "3.12", ["manylinux_2_28_x86_64"]))
    assert "--python-version 3.12" in line and "--platform manylinux_2_28_x86_64" in line and line.endswith("dill")
