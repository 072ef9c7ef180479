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
from precis.config.shipped import option_values, resolve_configs

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
    """Run `fit`, `validate`, `test` or `predict` with the options of the command line, or print help."""
    if print_help(command, options):
        return
    if ALL in options:  # --trainer.help: every option, as in LightningCLI's --help
        options = ["--help"]
    elif {"-h", "--help"} & set(options):  # with `--model NAME`; `print_help` has handled the others
        options = [f"--model.help={_model_of(options)}"]
    arguments = _expand_run([command, *resolve_configs(options)])  # replaces `--run FOLDER` by options
    check_configs(arguments)
    # Imported only now: torch and Lightning take seconds.
    from precis.config.load_classes import load_classes
    from precis.training.training import PrecisCLI, command_line

    load_classes()  # imports the suite's models and data, so that LightningCLI knows them by name
    if any(argument.partition("=")[0] == "--data.help" for argument in arguments):
        print(NOTE)  # which options of the data a model sets
    sys.argv = [sys.argv[0], *arguments]  # read by LightningCLI, and by processes that it starts for other devices
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


def _expand_run(arguments: list[str]) -> list[str]:
    """Replace `--run FOLDER` by options with the folder's config, checkpoint and tokenizer; `fit` resumes the run."""
    index, folder = next(option_values(arguments, "--run"), (None, ""))  # index of the argument with the folder
    if index is None:
        return arguments
    if not folder:
        raise UserError("--run needs the folder of a run")
    first = index if arguments[index].startswith("--run=") else index - 1  # of the option
    command, *options = arguments[:first] + arguments[index + 1 :]  # without --run
    read_config(Path(folder))  # raises a `UserError` if it is no run folder
    if (Path(folder) / EXPORTED).is_file():
        remedy = "use precis summarize --checkpoint or precis.load, or name the run that it was exported from"
        raise UserError(f"{folder}: an exported model, which precis {command} does not read; {remedy}")
    run_options = [f"--config={folder}/config.yaml", f"--run_dir={folder}"]
    if command == "fit":
        return [command, *run_options, "--resume=auto", *options]
    run_options.append("--resume=false")  # only training resumes
    if (Path(folder) / "text").is_dir():  # the tokenizer of the run
        run_options.append(f"--data.tokenizer_dir={folder}/text")
    if not any(option.startswith("--ckpt_path") for option in options):
        from lightning_modules.checkpoints import best_checkpoint  # imports torch

        run_options.append(f"--ckpt_path={best_checkpoint(Path(folder))}")
    return [command, *run_options, *options]  # the user's options are last, to override the run's


def print_help(command: str, options: list[str]) -> bool:
    """Print help that needs no Lightning, such as the classes for `--model.help`; return whether there was any."""
    if len(options) == 1 and options[0] in _CLASSES:  # such as --model.help
        package = _CLASSES[options[0]]
        for name in package.__all__:
            print(f"{name:22} {_first_line(package.__name__, name)}")
        print(f"\nprecis {command} {options[0]} NAME lists the options of one")
        if options[0] == "--data.help":
            print(NOTE)  # which options of the data a model sets
        return True
    if not {"-h", "--help"} & set(options) or _model_of(options):  # help with `--model NAME` is LightningCLI's
        return False
    parser = ArgumentParser(prog=f"precis {command}", usage=f"precis {command} [options]", exit_on_error=False)
    add_options_of_run(parser)
    print(parser.format_help() + _SECTIONS)
    return True


def _model_of(options: list[str]) -> str:
    """Return the value of `--model NAME` or `--model=NAME`; empty without this option."""
    return next((value for _, value in option_values(options, "--model")), "")


def _first_line(package: str, name: str) -> str:
    """Return the first line of a class's docstring, from its source, since an import would take seconds."""
    path = Path(__file__).parents[2].joinpath(*MODULES[package][name].split("."))  # MODULES: module of each class
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    node = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    return (ast.get_docstring(node) or "").partition("\n")[0]
