"""Arguments of models: few, in groups whose fields the help documents."""

import inspect

import lightning_modules


def test_models_have_at_most_fifteen_arguments():
    models = {name: getattr(lightning_modules, name) for name in lightning_modules.__all__}
    assert {name for name, model in models.items() if len(inspect.signature(model).parameters) > 15} == set()


def test_the_help_of_a_model_documents_the_fields_of_its_groups(precis):
    help_text = " ".join(precis("fit", "--model.help", "RSTformer").out.split())
    assert "--model.encoder.window WINDOW Size of the attention window, both sides together; even." in help_text
    assert "--model.injection.formula" in help_text and "--model.optimizer.lr LR Peak learning rate" in help_text
