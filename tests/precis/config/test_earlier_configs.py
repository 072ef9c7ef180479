"""Names of arguments in configs of earlier versions."""

import inspect

import lightning_modules
from precis.config.earlier_configs import GROUPED, upgrade


def upgraded(model: str, arguments: dict) -> dict:
    """Return the arguments of a model in a config after the upgrade."""
    config = {"model": {"class_path": f"lightning_modules.{model}", "init_args": arguments}}
    return upgrade(config)["model"]["init_args"]


def test_arguments_move_into_groups_even_if_the_group_had_the_name_of_an_argument():
    former = {"encoder": "flat", "hidden_size": 8, "sigma": 0.3, "long_input": "windows", "dropout": 0.2}
    groups = {"encoder": {"kind": "flat", "hidden_size": 8}, "graph_bias": {"sigma": 0.3}, "dropout": 0.2}
    assert upgraded("GraphSum", former) == groups
    assert upgraded("GraphSum", groups) == groups
    assert upgraded("GraphSum", {"hidden_size": 9} | groups) == groups  # the present name takes precedence


def test_every_present_name_exists():
    for model, names in GROUPED.items():
        parameters = inspect.signature(getattr(lightning_modules, model)).parameters
        for name in names.values():
            group, field = name.split(".")
            assert hasattr(parameters[group].default, field), f"{model}: {name}"


def test_the_help_of_a_model_documents_the_fields_of_its_groups(precis):
    help_text = " ".join(precis("fit", "--model.help", "RSTformer").out.split())
    assert "--model.encoder.window WINDOW Size of the attention window, both sides together; even." in help_text
    assert "--model.injection.formula" in help_text and "--model.optimizer.lr LR Peak learning rate" in help_text
