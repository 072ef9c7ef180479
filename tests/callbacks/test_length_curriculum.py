from types import SimpleNamespace

import pytest
from cases import CASES
from pytorch_lightning import Callback, Trainer
from quiet_trainer import quiet_trainer

from callbacks import LengthCurriculum

CASE = next(case for case in CASES if case.name == "seq2seq")


class Seen(Callback):
    """Longest document and summary of each batch, in training and in validation."""

    def __init__(self):
        self.train, self.val = [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.train.append((batch.source.shape[1], batch.target.shape[1]))

    def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx=0):
        self.val.append((batch.source.shape[1], batch.target.shape[1]))

    on_test_batch_start = on_validation_batch_start


def make_trainer(seen: Seen, **options) -> Trainer:
    """Return a trainer with a curriculum of 6, 18 and 30 source tokens, four steps each."""
    return quiet_trainer(LengthCurriculum(source=6, target=2, steps=4, stages=3), seen, **options)


def test_lengths_grow_in_equal_stages():
    curriculum = LengthCurriculum(source=100, target=25, steps=10, stages=4)
    table = {0: (100, 25), 9: (100, 25), 10: (200, 50), 19: (200, 50), 20: (300, 75), 30: (400, 100), 10**6: (400, 100)}
    assert {step: curriculum.lengths_at(step, (400, 100)) for step in table} == table
    # never longer than the data's own lengths, also where those are short
    assert {curriculum.lengths_at(step, (60, 100))[0] for step in range(40)} == {60}


def test_batches_are_cut_while_training_and_whole_in_validation(corpus_files):
    seen, data = Seen(), CASE.build_data(corpus_files)
    trainer = make_trainer(seen, max_epochs=2, val_check_interval=3, num_sanity_val_steps=1)
    trainer.fit(CASE.build_model(), data)
    documents = {split: [len(row["source"]) for row in data.features(split)] for split in ("train", "val")}
    assert min(documents["train"] + documents["val"]) > 18
    # the last stage is that of the data, 30 and 12; all summaries have 8 tokens
    assert seen.train[:8] == [(6, 2)] * 4 + [(18, 7)] * 4 and len(seen.train) == 14
    assert all(18 < source <= 30 and target == 8 for source, target in seen.train[8:])
    # the sanity check, then twice an epoch, two batches each
    assert len(seen.val) == 1 + 4 * 2 and all(source > 18 and target == 8 for source, target in seen.val)


def test_a_test_after_a_short_training_reads_whole_documents(corpus_files):
    seen, data = Seen(), CASE.build_data(corpus_files)
    trainer = make_trainer(seen, max_steps=2, val_check_interval=2, num_sanity_val_steps=0)
    model = CASE.build_model()
    trainer.fit(model, data)
    assert data.lengths_now == (data.max_source, data.max_target) == (30, 12)
    seen.val.clear()
    trainer.test(model, data, verbose=False)
    assert seen.train == [(6, 2)] * 2 and seen.val and all(source > 18 and target == 8 for source, target in seen.val)


@pytest.mark.parametrize(
    "data, said",
    [
        (SimpleNamespace(num_workers=None), "SimpleNamespace does not truncate documents"),
        (SimpleNamespace(num_workers=2, lengths_now=(1, 1)), "needs --data.num_workers 0"),
    ],
)
def test_data_that_cannot_be_cut_is_refused_in_training_only(data, said):
    curriculum = LengthCurriculum(source=10, target=5, steps=2)
    with pytest.raises(ValueError, match=said):
        curriculum.setup(SimpleNamespace(datamodule=data), None, "fit")
    curriculum.setup(SimpleNamespace(datamodule=data), None, "test")
