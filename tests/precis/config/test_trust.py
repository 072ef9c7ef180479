"""Untrusted configs run no code: forbidden names are refused before anything is built."""

import copy
import json

import pytest
import torch
import yaml
from conftest import change_config, write

from precis.config.trust import check_commands, names_on_command_line
from precis.runs.run_folder import load_run

pytestmark = pytest.mark.integration

COMMAND = "touch {}"
MODULE = """import pathlib
from pytorch_lightning import Callback
pathlib.Path({!r}).touch()
class Hello(Callback):
    pass
"""


@pytest.fixture
def trap(tmp_path):
    """Return a file that only exists if the command in a config was run."""
    return tmp_path / "ran"


@pytest.fixture
def hostile_module(tmp_path, trap, monkeypatch):
    """The name of a module that can be imported, and leaves the file when it is."""
    (tmp_path / "hostile_code.py").write_text(MODULE.format(str(trap)), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "hostile_code"


def callback(name, **init_args):
    return {"class_path": name, "init_args": init_args}


def with_changes(path, tmp_path, changes):
    return change_config(path, changes, tmp_path / "hostile.yaml")


def call(trap, name="os.system"):
    return callback(name, command=COMMAND.format(trap))


LAMBDA = "pytorch_lightning.callbacks.LambdaCallback"
SGD = callback("torch.optim.SGD", lr=0.1)
SCHEDULE = "torch.optim.lr_scheduler.LambdaLR"
# what a config says, with the command's class where TRAP stands
SPELLINGS = {
    "callable": {"trainer.callbacks": [callback(LAMBDA, on_fit_start="TRAP")]},
    "schedule": {"optimizer": SGD, "lr_scheduler": callback(SCHEDULE, lr_lambda="TRAP")},
    "callback": {"trainer.callbacks": ["TRAP"]},
    "model": {"model": "TRAP"},
    "corpus": {"data.init_args.corpus": "TRAP"},
    "logger": {"trainer.logger": ["TRAP"]},
    "plugins": {"trainer.plugins": ["TRAP"]},
    "any": {"trainer.logger": [callback("pytorch_lightning.loggers.WandbLogger", experiment="TRAP")]},
    "extra-keywords": {
        "trainer.logger": [{"class_path": "pytorch_lightning.loggers.WandbLogger", "dict_kwargs": {"config": "TRAP"}}]
    },
}


def fill(value, trap):
    """The spelling with the trap in it."""
    if value == "TRAP":
        return trap
    if isinstance(value, dict):
        return {key: fill(part, trap) for key, part in value.items()}
    return [fill(part, trap) for part in value] if isinstance(value, list) else value


def refused(done, trap, *words):
    done.failed_in_one_line(*words, status=(1, 2))
    assert not trap.exists()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_config_calls_nothing(spelling, tiny_config, tmp_path, trap, precis):
    config = with_changes(tiny_config, tmp_path, fill(copy.deepcopy(SPELLINGS[spelling]), call(trap)))
    refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), trap, "os.system", "--trust")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [
    "torch.hub.load", "torch.utils.data.DataLoader", "pytorch_lightning.trainer.trainer.os.abort",
    "pytorch_lightning.cli.LightningCLI", "datamodules.corpora.corpus.build_documents",
    "precis.command_line.cli.main", "callbacks.graceful_stop.os.system", "os . system",
])  # fmt: skip
def test_no_spelling_of_a_name_helps(name, tiny_config, tmp_path, trap, precis):
    for value in (call(trap, name), name):  # with arguments, and a function by its name alone
        config = with_changes(tiny_config, tmp_path, {"trainer.callbacks": [callback(LAMBDA, on_fit_start=value)]})
        refused(precis("fit", "--config", config, "--run_dir", tmp_path / "run"), trap)


def test_a_config_in_a_string_or_another_file_calls_nothing(tiny_config, tmp_path, trap, precis):
    nested = yaml.safe_dump([callback(LAMBDA, on_fit_start=call(trap))], default_flow_style=True)
    config = with_changes(tiny_config, tmp_path, {"trainer.callbacks": nested})
    refused(precis("fit", "--config", config), trap, "os.system")
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(call(trap)), encoding="utf-8")
    config = with_changes(tiny_config, tmp_path, {"data.init_args.corpus": str(tmp_path / "other.yaml")})
    refused(precis("fit", "--config", config), trap)


@pytest.mark.parametrize("key", ["optimizer", "model"])
def test_a_class_path_that_is_no_name_is_refused(key, tiny_config, tmp_path, trap, precis):
    config = with_changes(tiny_config, tmp_path, {key: {"class_path": call(trap), "init_args": {}}})
    done = precis("fit", "--config", config, "--run_dir", tmp_path / "run")
    refused(done, trap, f"{key}: class_path has to be the dotted name of a class")


def test_yaml_tags_make_no_objects(tiny_config, tmp_path, trap, precis):
    tag = f"!!python/object/apply:os.system ['{COMMAND.format(trap)}']"
    text = tiny_config.read_text(encoding="utf-8")
    config = write(tmp_path / "tagged.yaml", text + f"run_dir: {tag}\n")
    refused(precis("fit", "--config", config), trap, "tagged.yaml:", "tag")


def test_a_module_is_not_even_imported(hostile_module, tiny_config, tmp_path, trap, precis):
    for named in ([callback(f"{hostile_module}.Hello")], f"{hostile_module}.Hello"):
        config = with_changes(tiny_config, tmp_path, {"trainer.callbacks": named})
        refused(precis("fit", "--config", config), trap, f"{hostile_module}.Hello", "--trust")


@pytest.mark.parametrize("how", ["--trust", "--trainer.callbacks=hostile_code.Hello"])
def test_the_command_line_may_name_anything(how, hostile_module, tiny_config, tmp_path, trap, precis, monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, hostile_module, raising=False)
    changes = {"trainer.callbacks": [callback(f"{hostile_module}.Hello")]} if how == "--trust" else {}
    config = with_changes(tiny_config, tmp_path, changes)
    done = precis("fit", "--config", config, "--run_dir", tmp_path / "run", "--trainer.max_steps=1", how)
    assert done.status == 0 and trap.exists(), done.err


def test_names_are_taken_from_options_of_classes_alone():
    named = names_on_command_line(
        ["fit", "--config=a.yaml", "--run", "os.system", "--trainer.callbacks+=mine.Hello", "--optimizer",
         "mine.sgd.Sgd", "--model={class_path: mine.Model, init_args: {f: mine.f}}", "--data.corpus.train=a/b.jsonl"]
    )  # fmt: skip
    assert named == {"mine.Hello", "mine.sgd.Sgd", "mine.Model", "mine.f"}


@pytest.mark.parametrize("command", ["fit", "test", "summarize", "report"])
def test_a_strangers_run_folder_calls_nothing(command, run_folder, tmp_path, trap, precis):
    changes = {"trainer.callbacks": [callback(LAMBDA, on_test_start=call(trap))]}
    if command in ("summarize", "report"):  # which make the model and its data alone
        changes = {"data.init_args.corpus": call(trap)}
    with_changes(run_folder / "config.yaml", tmp_path, changes).replace(run_folder / "config.yaml")
    prediction = {"id": "doc-33", "summary": ["the otter"], "references": [["the otter"]]}
    (run_folder / "predictions.jsonl").write_text(json.dumps(prediction) + "\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("The otter slept.", encoding="utf-8")
    arguments = {"summarize": ["--checkpoint", run_folder, tmp_path / "text.txt"], "report": [run_folder]}
    refused(precis(command, *arguments.get(command, ["--run", run_folder])), trap, "os.system", "--trust")


def test_reading_a_run_in_python_calls_nothing(run_folder, tmp_path, trap, hostile_module, monkeypatch):
    changes = {"data.init_args.corpus": callback(f"{hostile_module}.Hello")}
    with_changes(run_folder / "config.yaml", tmp_path, changes).replace(run_folder / "config.yaml")
    with pytest.raises(Exception, match=f"{hostile_module}.Hello"):
        load_run(run_folder)
    assert not trap.exists()


@pytest.mark.parametrize("part", ["set", "grid", "points"])
def test_a_strangers_sweep_calls_nothing(part, tiny_config, tmp_path, trap, precis):
    callbacks = [callback(LAMBDA, on_fit_start=call(trap))]
    values = {"set": {"trainer.callbacks": callbacks}, "points": [{"name": "a", "trainer.callbacks": callbacks}]}
    values |= {name: {"trainer.callbacks": [callbacks, None]} for name in ("grid", "zip")}
    sweep = write(tmp_path / "sweep.yaml", {"base": str(tiny_config), "seeds": [1], part: values[part]})
    for options in ([], ["--dry-run"]):
        done = precis("sweep", sweep, "--out", tmp_path / "out", *options)
        refused(done, trap, "os.system", "--trust", "sweep.yaml: point")
        assert not (tmp_path / "out").exists() and done.out == ""


@pytest.mark.parametrize("command", [
    "test --trainer.callbacks+=subprocess.Popen --trainer.callbacks.args=id",
    "test --data.corpus=hostile_code.Hello",
    "validate --trust=true",
    "clean / --yes",
    "evaluate {run}/predictions.jsonl --metrics=[rouge,hostile_code.Hello]",
    "evaluate {run}/../documents.jsonl",
    "evaluate {run}/predictions.jsonl --ou={run}/status.json",
    "evaluate {run}/predictions.jsonl --html {run}/../page.html",
    "test --run_dir=other",
    "test --trainer.callbacks callbacks.PredictionWriter --trainer.callbacks.path .bashrc",
])  # fmt: skip
def test_commands_of_a_strangers_sweep_name_no_foreign_class(command, tiny_config, tmp_path, trap, precis):
    sweep, out = tmp_path / "sweep.yaml", tmp_path / "out"
    sweep.write_text(yaml.safe_dump({"base": str(tiny_config), "seeds": [1], "after": [command]}), encoding="utf-8")
    for options in ([], ["--dry-run"]):
        refused(precis("sweep", sweep, "--out", out, *options), trap, "sweep.yaml: after: ")
    # the folder of a sweep that somebody else has launched
    out.mkdir()
    config = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    described = {"after": [command], "points": [{"run": "a", "label": "a", "config": config}]}
    (out / "points.json").write_text(json.dumps(described), encoding="utf-8")
    refused(precis("sweep", "point", out, "--index", 0), trap, "points.json: after: ")
    assert not (out / "a").exists()


def test_options_of_a_strangers_sweep_are_permitted(tmp_path):
    check_commands(["test", "report {run}", "evaluate {run}/predictions.jsonl"], "a.yaml")
    # names of files, also where a module has the name before the dot
    check_commands(["evaluate {run}/test.jsonl --html {run}/page.html --references refs.txt", "test --run={run}"], "x")
    check_commands(["validate --data.max_eval 100 --data.corpus=datamodules.corpora.Docstrings"], "a.yaml")


OUTPUTS = {
    "logger": {"trainer.logger": callback("pytorch_lightning.loggers.CSVLogger", save_dir="OUTSIDE")},
    "name-of-a-logger": {
        "trainer.logger": {"class_path": "CSVLogger", "init_args": {"save_dir": "INSIDE", "name": "../outside"}}
    },
    "callback": {"trainer.callbacks": [callback("callbacks.PredictionWriter", path="OUTSIDE/.bashrc")]},
    "checkpoint": {"checkpoint.dirpath": "OUTSIDE"},
    "profiler": {"trainer.profiler": callback("SimpleProfiler", dirpath="OUTSIDE", filename="profile")},
    "predictions": {"out": "OUTSIDE/predictions.jsonl"},
}


@pytest.mark.parametrize("spelling", OUTPUTS)
def test_a_strangers_config_writes_inside_its_run_folder_alone(spelling, tiny_config, tmp_path, precis, monkeypatch):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    monkeypatch.chdir(tmp_path)
    text = json.dumps(OUTPUTS[spelling]).replace("OUTSIDE", str(outside)).replace("INSIDE", str(run))
    config = with_changes(tiny_config, tmp_path, json.loads(text))
    refused(precis("fit", "--config", config, "--run_dir", run), outside / "ran", "may only write inside", "--trust")
    assert not list(outside.iterdir()) and not run.exists()


def test_outputs_inside_the_run_folder_and_on_the_command_line_are_permitted(tiny_config, tmp_path, precis):
    run, logs = tmp_path / "run", tmp_path / "logs"
    changes = {"trainer.logger": callback("CSVLogger", save_dir=str(run / "logs")), "trainer.max_steps": 1}
    config = with_changes(tiny_config, tmp_path, changes)
    done = precis("fit", "--config", config, "--run_dir", run, f"--trainer.default_root_dir={logs}")
    assert done.status == 0 and list(run.glob("logs/**/metrics.csv")), done.err


class Unpickled:
    """Leaves a file when it is unpickled."""

    def __init__(self, trap):
        self.trap = trap

    def __reduce__(self):
        return __import__("os").system, (COMMAND.format(self.trap),)


@pytest.mark.parametrize("weights_only", [None, False])
def test_a_checkpoint_that_a_config_names_is_not_unpickled(weights_only, tiny_config, tmp_path, trap, precis):
    checkpoint = tmp_path / "hostile.ckpt"
    torch.save({"state_dict": {}, "hyper_parameters": Unpickled(trap)}, checkpoint)
    changes = {"ckpt_path": str(checkpoint), "weights_only": weights_only}
    refused(precis("fit", "--config", with_changes(tiny_config, tmp_path, changes)), trap)
    for address in ("http://localhost:1/x.ckpt", checkpoint.as_uri(), f"local:{checkpoint}"):
        changes["ckpt_path"] = address
        config = with_changes(tiny_config, tmp_path, changes)
        refused(precis("fit", "--config", config), trap, "weights_only" if weights_only is False else "takes a file")


def test_a_chat_model_as_a_reward_is_named_on_the_command_line(tiny_config, tmp_path, precis):
    """Documents and the API key go to the address that comes with it."""
    arguments = {"model": "tiny", "base_url": "http://localhost:1/v1", "answers": str(tmp_path / "answers.jsonl")}
    reward = {"class_path": "precis.baselines.chat_reward.ChatReward", "init_args": arguments}
    callback = {"class_path": "callbacks.SelfCritical", "init_args": {"reward": reward}}
    path = write(tmp_path / "chat.yaml", {"trainer": {"callbacks": [callback]}})
    done = precis("fit", "--config", tiny_config, "--config", path, "--print_config")
    assert done.status != 0 and "a config may not name precis.baselines.chat_reward.ChatReward" in done.err
    option = "--trainer.callbacks.reward"
    named = ["--trainer.callbacks+=callbacks.SelfCritical", f"{option}={reward['class_path']}"]
    named += [f"{option}.{name}={value}" for name, value in arguments.items()]
    done = precis("fit", "--config", tiny_config, *named, "--print_config")
    assert done.status == 0 and f"class_path: {reward['class_path']}" in done.out
