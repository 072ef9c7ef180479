"""Check the values of a config before training, and explain the errors of constructors with the key of the value."""

import re
from collections.abc import Iterator
from typing import Any

from pytorch_lightning.utilities.exceptions import MisconfigurationException

from datamodules.documents import UserError
from precis.files.nested_values import get_value, leaves

# Exceptions that constructors raise for invalid values.
REFUSALS = (ValueError, TypeError, RuntimeError, ImportError, OSError, ArithmeticError, AssertionError)
REFUSALS += (MisconfigurationException,)

_SIZES = "vocab_size size hidden_size inner_size heads decoder_heads decoder_inner_size agents window"
_COUNTS = "batch_size eval_batch_size max_source max_target max_train max_eval beam_size max_length num_proc"
_TRAINER_COUNTS = "accumulate_grad_batches check_val_every_n_epoch num_nodes"
_AMOUNTS = "min_length num_workers lr encoder_lr sigma_lr weight_decay warmup_steps encoder_warmup_steps"
_AMOUNTS += " gradient_clip_val seed_everything std init_std patience"
_MINIMA: dict[str, float] = dict.fromkeys(f"{_SIZES} {_COUNTS} {_TRAINER_COUNTS}".split(), 1)
_MINIMA |= dict.fromkeys(_AMOUNTS.split(), 0)
_MINIMA |= {"max_epochs": -1, "max_steps": -1}  # where -1 means no limit
# options of the Trainer that take an integer number of batches, or a float as a fraction of an epoch
_BATCHES = tuple(f"limit_{stage}_batches" for stage in ("train", "val", "test", "predict"))
_BATCHES += ("overfit_batches", "val_check_interval")
_UNUSABLE = {  # callbacks of Lightning that do not work in a run folder, or whose results no checkpoint has
    "StochasticWeightAveraging": "changes no checkpoint; use EMAWeightAveraging",
    "LearningRateFinder": "does not find where models keep their rates; search for the rate by precis sweep",
    "BatchSizeFinder": "does not work here; set data.batch_size, whose memory precis fit --dry-run measures",
}
_SECRETS = ("api_key", "api_token", "password", "secret")  # options of loggers
_URL_WITH_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@")
PRETRAINED = ("encoder.checkpoint", "checkpoint")  # options that take a name or folder
_MISSING_MODEL = re.compile(
    r"Repo id must be|couldn't connect to|is not a local folder|not a valid model identifier|Can't load|"
    r"does not appear to have|[Nn]o file named|Unrecognized model|cannot find the requested files"
)


def parse_batch_counts(parser: Any) -> None:
    """Let a parser read 1 as a batch, unlike 1.0, an epoch: `typing` may replace Lightning's union by float | int."""
    for action in parser._actions:
        if action.dest.startswith(("trainer.limit_", "trainer.val_check_interval")):
            action._typehint = int | float | None  # which `typing` does not cache


def check_ranges(config: Any) -> None:
    """Raise a `UserError` with the key of the first size, count or share of a parsed config that is out of range."""
    for key, value in _keys_and_values(config):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        name = key.rpartition(".")[2]
        if name in _MINIMA and value < _MINIMA[name]:  # the lowest allowed value of an option
            raise UserError(f"{key} must be at least {_MINIMA[name]}, got {value}")
        if (name == "dropout" or name.endswith("_dropout")) and not 0 <= value <= 1:
            raise UserError(f"{key} must be between 0 and 1, got {value}")
        if name in _BATCHES and (value < 0 or (value > 1 and isinstance(value, float))):  # such as 1.5 and 2.0
            raise UserError(f"{key} must be an integer number of batches or a share between 0.0 and 1.0, got {value}")


def check_effects(config: Any) -> None:
    """Raise a `UserError` for a part of the config of `fit` that would have no effect, or cannot work."""
    if config.get("lr_scheduler") and not config.get("optimizer"):
        raise UserError("lr_scheduler has no effect without an optimizer; add --optimizer, or --lr_scheduler null")
    for key, value in _keys_and_values(config):
        if key.endswith("class_path") and (name := value.rpartition(".")[2]) in _UNUSABLE:
            raise UserError(f"{key.removesuffix('.class_path')}: {name} {_UNUSABLE[name]}")


def check_no_keys(config: Any) -> None:
    """Raise a `UserError` if a config has an API key or password, which config.yaml and environment.json would keep."""
    for where, value in _keys_and_values(config):
        is_secret = where.rpartition(".")[2] in _SECRETS and value  # unless it is empty
        if is_secret or (isinstance(value, str) and _URL_WITH_PASSWORD.search(value)):
            remedy = "leave it out, and set the environment variable that the library reads"
            raise UserError(f"{where}: a key or password would be kept in the run folder; {remedy}")


def _keys_and_values(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for each value of a config, with keys as on the command line: `model.lr`, no `init_args`."""
    for key, value in leaves(config):
        yield re.sub(r"\.(init_args|dict_kwargs)\b|\[\d+\]", "", key), value


def explain_refusal(error: BaseException, config: Any) -> str:
    """Return one line for an error of a constructor of `model` or `data`: key, cause and remedy."""
    message = " ".join(str(error).split())
    # jsonargparse puts the constructor's message before one of its own; `Does not validate` is its own, too
    attempt = re.search(r"Errors: - (?!Does not validate)(.*?) - (?:Expected an? |Not a valid subclass)", message)
    cause = attempt[1] if attempt else message
    class_path = re.search(r"class_path='([^']+)'", message)
    configs = {name: part for name in ("model", "data") if (part := config.get(name))}  # without missing ones
    # the group, `model` or `data`, whose class is named in the message; the first one if it names no class
    group = next((name for name in configs if not class_path or configs[name].get("class_path") == class_path[1]), "")
    if not group or re.match(rf"({group}|decoding|selection)\.\w", cause):  # begins with a key: decoding.max_length
        return cause
    values = configs[group].get("init_args") or {}
    if _MISSING_MODEL.search(cause):  # a message of transformers on a model that cannot be loaded
        for name in PRETRAINED:
            if isinstance(value := get_value(values, name), str):
                return f"{group}.{name}: {missing_model_message(value)}"
    key = _option_in_message(cause, values)
    class_name = str(configs[group].get("class_path")).rpartition(".")[2]
    help_hint = f"`precis fit --{group}.help {class_name}` lists its arguments"
    if not key:
        return f"{group}: {class_name} cannot be created: {cause}; {help_hint}"
    return f"{group}.{key}: {cause}; {help_hint}"


def explain_trainer_refusal(error: BaseException, values: Any) -> str:
    """Return one line for an error of Lightning's Trainer, whose arguments are `values`: key, cause and remedy."""
    cause = " ".join(str(error).split())
    if "No supported gpu backend" in cause or "can not run on your system" in cause:
        return f"trainer.accelerator: no GPU here ({cause}); pass --trainer.accelerator cpu, or auto"
    argument = re.search(r"\b(\w+)=", cause)  # as in `Trainer(devices=0)`
    key = argument[1] if argument and argument[1] in values else _option_in_message(cause, values)
    option = f"trainer.{key}" if key else "trainer"  # no key: the message names no argument
    return f"{option}: {cause}; `precis fit --trainer.help` lists what it takes"


def missing_model_message(name: str) -> str:
    """Return the message that a pretrained model is missing, with a remedy."""
    return f"no pretrained model {name!r}: no such folder here, and not downloaded; give a folder that holds one"


def _option_in_message(cause: str, values: Any) -> str:
    """Return the option that a message names, else the only option whose value is a number in the message, else ""."""
    options = dict(_keys_and_values(values))
    mentioned = [key for key in options if re.search(rf"\b{re.escape(key.rpartition('.')[2])}\b", cause)]
    if mentioned:
        return max(mentioned, key=len)  # the most specific of options such as `size` and `encoder.size`
    numbers = {key: value for key, value in options.items() if isinstance(value, int | float) and value is not True}
    matching = [key for key, value in numbers.items() if re.search(rf"(?<![\w.-]){re.escape(str(value))}\b", cause)]
    return matching[0] if len(matching) == 1 else ""
