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
            group, _, field = name.partition(".")
            assert not field or hasattr(parameters[group].default, field), f"{model}: {name}"


def test_models_have_at_most_fifteen_arguments():
    models = {name: getattr(lightning_modules, name) for name in lightning_modules.__all__}
    assert {name for name, model in models.items() if len(inspect.signature(model).parameters) > 15} == set()


def test_former_names_of_each_family():
    extractive = {"encoder": None, "layers": 2, "inter_layers": 0, "warm_up": 5, "frozen_encoder": True}
    assert upgraded("BertSum", extractive) == {
        "encoder": {"checkpoint": None, "layers": 2, "frozen": True},
        "inter_sentence": {"layers": 0},
        "optimizer": {"warmup_steps": 5},
    }
    assert upgraded("BertSumAbs", {"decoder_size": 7, "encoder_warm_up": 9}) == {
        "decoder_inner_size": 7,
        "optimizer": {"encoder_warmup_steps": 9},
    }
    parser = {"encoder": "small", "encoder_dropout": 0.1, "dropout": 0.2, "start_from": None, "loss_weights": None}
    assert upgraded("DiscourseParser", parser) == {
        "encoder": {"checkpoint": "small", "dropout": 0.1},
        "dropout": 0.2,
    }
    assert upgraded("DiscourseParser", {"start_from": "run"}) == {"start_from": "run"}  # is refused afterwards
    agents = {"embedding_size": 3, "word_vectors": None, "learning_rate": 0.1}
    assert upgraded("CommunicatingAgents", agents) == {
        "embedding": {"size": 3, "word_vectors": None},
        "optimizer": {"lr": 0.1},
    }


def test_the_help_of_a_model_documents_the_fields_of_its_groups(precis):
    help_text = " ".join(precis("fit", "--model.help", "RSTformer").out.split())
    assert "--model.encoder.window WINDOW Size of the attention window, both sides together; even." in help_text
    assert "--model.injection.formula" in help_text and "--model.optimizer.lr LR Peak learning rate" in help_text


def test_former_arguments_of_callbacks_are_renamed():
    def upgraded_callbacks(*callbacks):
        return upgrade({"trainer": {"callbacks": list(callbacks)}})["trainer"]["callbacks"]

    former = {"class_path": "callbacks.SelfCritical", "init_args": {"baseline": "leave_one_out", "collapse": 0.001}}
    present = {"class_path": "callbacks.SelfCritical", "init_args": {"advantage": "leave_one_out"}}
    assert upgraded_callbacks(former, "other") == [present, "other"] and upgraded_callbacks(present) == [present]
    assert upgrade({"trainer": {"callbacks": None}}) == {"trainer": {"callbacks": None}}
