"""`precis fit`, `validate`, `test` and `predict`: LightningCLI over a config, or over the folder of a run."""

import sys
from functools import partial
from pathlib import Path

from datamodules.documents import UserError
from lightning_modules.exported import EXPORTED
from precis.config.linked_arguments import NOTE
from precis.config.parse_errors import check_configs
from precis.config.run_config import read_config
from precis.config.shipped import resolve_configs
from precis.training.training_help import print_help, with_help_of_lightning


def _run(command: str, options: list[str]) -> None:
    """Run a command of Lightning over configs, or over the folder of a run."""
    if print_help(command, options):
        return
    arguments = with_run([command, *resolve_configs(with_help_of_lightning(options))])
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


def with_run(arguments: list[str]) -> list[str]:
    """Replace `--run FOLDER` by the config, checkpoint and tokenizer of that folder.

    For `fit`, the run is resumed, or started if it has no checkpoint yet.
    """
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
