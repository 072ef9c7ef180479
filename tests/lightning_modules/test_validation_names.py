"""Models state what a validation logs, so that sweeps can check monitored values before a run."""


import pytest
from cases import CASES
from conftest import read_metrics

from lightning_modules import PointerGenerator
from lightning_modules.summarizer import SCORES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_terms_of_the_loss_are_stated(case, corpus_files):
    model, data = case.build_model(), case.build_data(corpus_files)
    data.prepare_data()
    data.setup("fit")
    model.set_tokenizer(data.tokenizer)
    terms = model.eval().loss_terms(next(iter(data.val_dataloader())))
    assert terms and terms.keys() <= set(model.validation_names)


def test_a_run_logs_the_names_and_no_others(trained):
    logged = {name.removeprefix("val/") for name in read_metrics(trained)[0] if name.startswith("val/")}
    assert logged == {*SCORES, *PointerGenerator.validation_names}
