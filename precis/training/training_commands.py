"""`precis fit`, `validate`, `test` and `predict`, over a config or a run folder; their help needs no Lightning."""

import ast
import sys
from functools import partial
from pathlib import Path

from jsonargparse import ArgumentParser

import datamodules
import datamodules.corpora
import lightning_modules
from datamodules.documents import UserError
from datamodules.lazy_import import MODULES
from lightning_modules.exported import EXPORTED
from precis.config.parse_errors import check_configs
from precis.config.run_arguments import NOTE, add_options_of_run
from precis.config.run_config import read_config
from precis.config.shipped import resolve_configs

ALL = "--trainer.help"  # prints the whole help of LightningCLI
_CLASSES = {"--model.help": lightning_modules, "--data.help": datamodules, "--data.corpus.help": datamodules.corpora}
_SECTIONS = f"""
sections of a config, whose keys are options too (--model.dropout 0.2):
  --config FILE         YAML file with all sections; options of the command line come after it
  --run RUN             run folder to continue, or to validate, test or predict with
  --model NAME          model; --model.help lists them, --model.help NAME its options
  --data NAME           data; --data.help lists them, --data.help NAME its options
  --data.corpus NAME    corpus; --data.corpus.help lists them
  --optimizer NAME      optimizer of torch in place of the model's own, and --lr_scheduler NAME its schedule
  --trainer.NAME VALUE  option of Lightning's Trainer, such as max_epochs, devices, precision, callbacks
  --checkpoint.NAME     option of the selection of the best checkpoint
  {ALL}        every option, with those of Trainer and checkpoint
"""


def _run(command: str, options: list[str]) -> None:
    """Run a command of Lightning over configs, or over the folder of a run."""
    if print_help(command, options):
        return
    if ALL in options:
        options = ["--help"]
    elif {"-h", "--help"} & set(options):  # as in `--model NAME --help`
        options = [f"--model.help={_model_of(options)}"]
    arguments = _with_run([command, *resolve_configs(options)])
    check_configs(arguments)
    # Imported only now: torch and Lightning take seconds.
    from precis.config.load_classes import load_classes
    from precis.training.training import PrecisCLI, command_line

    load_classes()
    if any(argument.partition("=")[0] == "--data.help" for argument in arguments):
        print(NOTE)
    sys.argv = [sys.argv[0], *arguments]  # where LightningCLI looks, and those that it starts for other devices
    command_line(PrecisCLI)


fit = partial(_run, "fit")
validate = partial(_run, "validate")
predict = partial(_run, "predict")


def test(options: list[str]) -> None:
    """Score a run, or with `--checkpoint` a model of Hugging Face."""
    if not any(option.partition("=")[0] == "--checkpoint" for option in options):
        return _run("test", options)
    from precis.baselines.hugging_face import score_pretrained

    return score_pretrained(options)


def _with_run(arguments: list[str]) -> list[str]:
    """Replace `--run FOLDER` by the config, checkpoint and tokenizer of that folder; `fit` resumes or starts it."""
    index = next((i for i, argument in enumerate(arguments) if argument.partition("=")[0] == "--run"), None)
    if index is None:
        return arguments
    value = arguments[index].partition("=")[2]
    remaining = arguments[:index] + arguments[index + (1 if value else 2) :]
    folder = value or "".join(arguments[index + 1 : index + 2])
    if not folder:
        raise UserError("--run needs the folder of a run")
    read_config(Path(folder))
    command, *options = remaining
    if (Path(folder) / EXPORTED).is_file():
        remedy = "use precis summarize --checkpoint or precis.load, or name the run that it was exported from"
        raise UserError(f"{folder}: an exported model, which precis {command} does not read; {remedy}")
    from_run = [f"--config={folder}/config.yaml", f"--run_dir={folder}"]
    if command == "fit":
        return [command, *from_run, "--resume=auto", *options]
    from_run.append("--resume=false")
    if (Path(folder) / "text").is_dir():
        from_run.append(f"--data.tokenizer_dir={folder}/text")
    if not any(option.startswith("--ckpt_path") for option in options):
        from lightning_modules.checkpoints import best_checkpoint  # imports torch

        from_run.append(f"--ckpt_path={best_checkpoint(Path(folder))}")
    return [command, *from_run, *options]


def print_help(command: str, options: list[str]) -> bool:
    """Print the help that options ask for, if it needs no import of Lightning, and return whether it did."""
    if len(options) == 1 and options[0] in _CLASSES:
        package = _CLASSES[options[0]]
        for name in package.__all__:
            print(f"{name:22} {_first_line(package.__name__, name)}")
        print(f"\nprecis {command} {options[0]} NAME lists the options of one")
        if options[0] == "--data.help":
            print(NOTE)
        return True
    if not {"-h", "--help"} & set(options) or _model_of(options):
        return False
    parser = ArgumentParser(prog=f"precis {command}", usage=f"precis {command} [options]", exit_on_error=False)
    add_options_of_run(parser)
    print(parser.format_help() + _SECTIONS)
    return True


def _model_of(options: list[str]) -> str:
    """Return the model that options name; empty if none."""
    for option, following in zip(options, [*options[1:], ""]):
        name, equals, value = option.partition("=")
        if name == "--model":
            return value if equals else following
    return ""


def _first_line(package: str, name: str) -> str:
    """Return the first line of the docstring of a class that a package offers, from the source of its module."""
    path = Path(__file__).parents[2].joinpath(*MODULES[package][name].split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    node = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(node) or "").partition("\n")[0]
