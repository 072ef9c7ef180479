"""Beam search reads the output layer as it is, whatever changed it."""

import pytest
import torch
from cases import CASES
from pytorch_lightning import Callback, seed_everything
from pytorch_lightning.callbacks import WeightAveraging
from test_harness import trainer_with

from lightning_modules.decoding.options import DecodingOptions

copying = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in ("pointer-coverage", "agents-m7")], ids=lambda case: case.name
)


def first_batch(case, files):
    data = case.build_data(files)
    data.prepare_data()
    data.setup("test")
    return data, next(iter(data.test_dataloader()))


@copying
def test_a_change_that_leaves_the_version_alone_is_seen(case, corpus_files):
    seed_everything(5, verbose=False)
    data, batch = first_batch(case, corpus_files)
    model, other = case.build_model(), case.build_model()
    for one in (model, other):
        one.set_tokenizer(data.tokenizer)
    options = DecodingOptions(beam_size=2, min_length=1, max_length=6)
    before = model.generate(batch, options)
    for mine, theirs in zip(model.parameters(), other.parameters()):
        mine.data.copy_(theirs.data)
    after, expected = model.generate(batch, options), other.generate(batch, options)
    assert not after.scores.equal(before.scores)
    assert after.scores.equal(expected.scores) and after.tokens.equal(expected.tokens)


class Searched(Callback):
    """Records the scores of a search during each validation, and those of a new model with the same weights."""

    def __init__(self, case, batch):
        self.case, self.batch, self.rows = case, batch, []

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        fresh = self.case.build_model()
        fresh.set_tokenizer(pl_module.tokenizer)
        fresh.load_state_dict(pl_module.state_dict())
        options = DecodingOptions(beam_size=2, min_length=1, max_length=6)
        self.rows.append(tuple(model.generate(self.batch, options).scores for model in (pl_module, fresh)))


@copying
def test_averaged_weights_are_searched_in_validation(case, corpus_files):
    seed_everything(5, verbose=False)
    _, batch = first_batch(case, corpus_files)
    searched, model = Searched(case, batch), case.build_model()
    averaging = WeightAveraging(avg_fn=lambda average, now, count: 0.9 * average + 0.1 * now)
    trainer = trainer_with(averaging, searched, val_check_interval=3, limit_val_batches=1)
    trainer.fit(model, case.build_data(corpus_files))
    assert len(searched.rows) == 5  # after the sanity check: 3, 6, 10, 13
    for ours, expected in searched.rows:
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)
