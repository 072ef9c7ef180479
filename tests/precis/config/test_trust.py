"""Untrusted configs run no code: forbidden names are refused before anything is built."""

import json
import os
import sys

import pytest
import torch
import yaml
from conftest import change_config, write, write_sweep

from precis.config.trust import check_commands, names_on_command_line
from tests.precis.sharing.test_import_command import Unpickled

pytestmark = pytest.mark.integration

MODULE = """import pathlib
from pytorch_lightning import Callback
pathlib.Path({!r}).touch()
class Hello(Callback):
    pass
"""


@pytest.fixture
def trap(tmp_path):
    return tmp_path / "ran"  # a file that only exists if the command in a config was run


@pytest.fixture
def fit(tiny_config, tmp_path, precis):
    def run(changes, *options):
        config = change_config(tiny_config, changes, tmp_path / "hostile.yaml")
        return precis("fit", "--config", config, "--run_dir", tmp_path / "run", *options)

    return run


def callback(name, /, **init_args):
    return {"class_path": name, "init_args": init_args}


def call(trap, name="os.system"):
    return callback(name, command=f"touch {trap}")


def refused(done, trap, *words):
    done.failed_in_one_line(*words, status=(1, 2))
    assert not trap.exists()


LAMBDA, WANDB = "pytorch_lightning.callbacks.LambdaCallback", "pytorch_lightning.loggers.WandbLogger"
LR_LAMBDA = callback("torch.optim.lr_scheduler.LambdaLR", lr_lambda="TRAP")
# what a config says, with the command's class where TRAP stands
SPELLINGS = [
    {"trainer.callbacks": [callback(LAMBDA, on_fit_start="TRAP")]},
    {"optimizer": callback("torch.optim.SGD", lr=0.1), "lr_scheduler": LR_LAMBDA},
    {"trainer.callbacks": ["TRAP"]}, {"trainer.logger": ["TRAP"]}, {"trainer.plugins": ["TRAP"]},
    {"model": "TRAP"}, {"data.init_args.corpus": "TRAP"},
    {"trainer.logger": [callback(WANDB, experiment="TRAP")]},
    {"trainer.logger": [{"class_path": WANDB, "dict_kwargs": {"config": "TRAP"}}]},
]  # fmt: skip


@pytest.mark.parametrize("config", SPELLINGS, ids=lambda config: "-".join(config))
def test_a_config_calls_nothing(config, fit, tmp_path, trap):
    changes = json.dumps(config).replace('"TRAP"', json.dumps(call(trap)))
    refused(fit(json.loads(changes)), trap, "os.system", "--trust")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", [
    "torch.hub.load", "torch.utils.data.DataLoader", "pytorch_lightning.trainer.trainer.os.abort",
    "pytorch_lightning.cli.LightningCLI", "datamodules.corpora.corpus.build_documents",
    "precis.command_line.cli.main", "callbacks.graceful_stop.os.system", "os . system",
])  # fmt: skip
def test_no_spelling_of_a_name_helps(name, fit, trap):
    for value in (call(trap, name), name):  # with arguments, and a function by its name alone
        refused(fit({"trainer.callbacks": [callback(LAMBDA, on_fit_start=value)]}), trap)


def test_no_string_other_file_class_path_or_yaml_tag_calls_anything(fit, tmp_path, trap, tiny_config, precis):
    nested = yaml.safe_dump([callback(LAMBDA, on_fit_start=call(trap))], default_flow_style=True)
    refused(fit({"trainer.callbacks": nested}), trap, "os.system")
    refused(fit({"data.init_args.corpus": str(write(tmp_path / "other.yaml", call(trap)))}), trap)
    for key in ("optimizer", "model"):
        done = fit({key: {"class_path": call(trap), "init_args": {}}})
        refused(done, trap, f"{key}: class_path has to be the dotted name of a class")

    tag = f"!!python/object/apply:os.system ['touch {trap}']"
    config = write(tmp_path / "tagged.yaml", tiny_config.read_text(encoding="utf-8") + f"run_dir: {tag}\n")
    refused(precis("fit", "--config", config), trap, "tagged.yaml:", "tag")


@pytest.mark.parametrize("how", ["named", "trusted"])
def test_only_a_module_that_is_named_or_trusted_is_imported(how, tmp_path, monkeypatch, fit, trap, caplog):
    hello = "hostile_code.Hello"
    write(tmp_path / "hostile_code.py", MODULE.format(str(trap)))  # it leaves a file when it is imported
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hostile_code", raising=False)
    for named in ([callback(hello)], hello):
        refused(fit({"trainer.callbacks": named}), trap, hello, "--trust")
    changes = {"trainer.callbacks": [callback(hello)]} if how == "trusted" else {}
    option = "--trust" if how == "trusted" else f"--trainer.callbacks={hello}"
    fit(changes, "--trainer.max_steps=1", option).succeeded()
    assert trap.exists() and caplog.text.rstrip().endswith(" --trust"), "the next command needs it too"


def test_names_are_taken_from_options_of_classes_alone_and_options_of_a_strangers_sweep_are_permitted():
    check_commands(["test", "report {run}", "evaluate {run}/predictions.jsonl"], "a.yaml")
    # names of files, also where a module has the name before the dot
    check_commands(["evaluate {run}/test.jsonl --html {run}/page.html --references refs.txt", "test --run={run}"], "x")
    check_commands(["validate --data.max_eval 100 --data.corpus=datamodules.corpora.Docstrings"], "a.yaml")
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
    change_config(run_folder / "config.yaml", changes)
    prediction = {"id": "doc-33", "summary": ["the otter"], "references": [["the otter"]]}
    write(run_folder / "predictions.jsonl", json.dumps(prediction) + "\n")
    text = write(tmp_path / "text.txt", "The otter slept.")
    arguments = {"summarize": ["--checkpoint", run_folder, text], "report": [run_folder]}
    refused(precis(command, *arguments.get(command, ["--run", run_folder])), trap, "os.system", "--trust")


@pytest.mark.parametrize("part", ["set", "grid", "points"])
def test_a_strangers_sweep_calls_nothing(part, tiny_config, tmp_path, trap, precis):
    callbacks = [callback(LAMBDA, on_fit_start=call(trap))]
    values = {"set": {"trainer.callbacks": callbacks}, "grid": {"trainer.callbacks": [callbacks, None]}}
    values["points"] = [{"name": "a", "trainer.callbacks": callbacks}]
    sweep = write_sweep(tmp_path, tiny_config, seeds=[1], **{part: values[part]})
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
    sweep = write_sweep(tmp_path, tiny_config, seeds=[1], after=[command])
    for options in ([], ["--dry-run"]):
        refused(precis("sweep", sweep, "--out", tmp_path / "out", *options), trap, "sweep.yaml: after: ")


@pytest.mark.parametrize("outputs", [
    {"trainer.logger": callback("pytorch_lightning.loggers.CSVLogger", save_dir="OUTSIDE")},
    {"trainer.logger": callback("CSVLogger", save_dir="INSIDE", name="../outside")},
    {"trainer.callbacks": [callback("callbacks.PredictionWriter", path="OUTSIDE/.bashrc")]},
    {"checkpoint.dirpath": "OUTSIDE"},
    {"trainer.profiler": callback("SimpleProfiler", dirpath="OUTSIDE", filename="profile")},
    {"out": "OUTSIDE/predictions.jsonl"},
], ids=["logger", "name-of-a-logger", "callback", "checkpoint", "profiler", "predictions"])  # fmt: skip
def test_a_strangers_config_writes_inside_its_run_folder_alone(outputs, fit, tmp_path, monkeypatch):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    monkeypatch.chdir(tmp_path)
    text = json.dumps(outputs).replace("OUTSIDE", str(outside)).replace("INSIDE", str(run))
    refused(fit(json.loads(text)), outside / "ran", "may only write inside", "--trust")
    assert not list(outside.iterdir()) and not run.exists()


def test_outputs_inside_the_run_folder_and_on_the_command_line_are_permitted(fit, tmp_path):
    changes = {"trainer.logger": callback("CSVLogger", save_dir=str(tmp_path / "run" / "logs"))}
    fit(changes, "--trainer.max_steps=1", f"--trainer.default_root_dir={tmp_path / 'logs'}").succeeded()
    assert list(tmp_path.glob("run/logs/**/metrics.csv"))


@pytest.mark.parametrize("weights_only", [None, False])
def test_a_checkpoint_that_a_config_names_is_not_unpickled(weights_only, fit, tmp_path, trap):
    checkpoint = tmp_path / "hostile.ckpt"
    torch.save({"state_dict": {}, "hyper_parameters": Unpickled(os.system, f"touch {trap}")}, checkpoint)
    refused(fit({"ckpt_path": str(checkpoint), "weights_only": weights_only}), trap)
    for address in ("http://localhost:1/x.ckpt", checkpoint.as_uri(), f"local:{checkpoint}"):
        done = fit({"ckpt_path": address, "weights_only": weights_only})
        refused(done, trap, "weights_only" if weights_only is False else "takes a file")


def test_a_chat_model_as_a_reward_is_named_on_the_command_line(fit, tmp_path):
    """Documents and the API key go to the address that comes with it."""
    name = "precis.baselines.chat_reward.ChatReward"
    arguments = {"model": "tiny", "base_url": "http://localhost:1/v1", "answers": str(tmp_path / "answers.jsonl")}
    done = fit({"trainer.callbacks": [callback("callbacks.SelfCritical", reward=callback(name, **arguments))]})
    assert done.status != 0 and f"a config may not name {name}" in done.err
    option = "--trainer.callbacks.reward"
    named = ["--trainer.callbacks+=callbacks.SelfCritical", f"{option}={name}"]
    named += [f"{option}.{argument}={value}" for argument, value in arguments.items()]
    assert f"class_path: {name}" in fit({}, *named, "--print_config").succeeded().out
