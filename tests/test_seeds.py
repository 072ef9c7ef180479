"""What a run's seed decides: weights, order of documents, dropout and samples; and where it is recorded."""

import json

import pytest
import torch
from cases import CASES
from pytorch_lightning import Callback, seed_everything
from test_harness import trainer_with

from callbacks import SelfCritical

pytestmark = pytest.mark.integration

CASE = next(case for case in CASES if case.name == "pointer-coverage")


class Draws(Callback):
    """Everything random of a training, in the order in which it happens."""

    def on_fit_start(self, trainer, pl_module):
        self.weights = torch.cat([parameter.detach().flatten() for parameter in pl_module.parameters()])
        self.order, self.samples, self.losses = [], [], []
        draw = pl_module.sample

        def sample(batch, options):
            samples = draw(batch, options)
            self.samples.append((sorted(batch.ids), samples.tokens.tolist()))
            return samples

        pl_module.sample = sample

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.order.append(batch.ids)
        self.losses.append(outputs["loss"].item())


def draws_of(run_seed: int, files: dict[str, str], **data) -> Draws:
    seed_everything(run_seed, verbose=False)
    model, draws = CASE.build_model(dropout=0.5), Draws()
    callbacks = [draws, SelfCritical(samples=2, gamma=0.5)]
    trainer_with(*callbacks, max_epochs=1, limit_val_batches=0).fit(model, CASE.build_data(files, **data))
    return draws


def test_everything_random_follows_the_seed(corpus_files):
    one, again, other = (draws_of(seed, corpus_files) for seed in (1, 1, 2))
    for name in ("order", "samples", "losses"):
        assert getattr(one, name) == getattr(again, name) != getattr(other, name), name
    assert torch.equal(one.weights, again.weights)
    trained = one.weights != other.weights
    assert trained.float().mean() > 0.9  # all but biases and the like, which start at zero
    pinned = draws_of(2, corpus_files, seed=1)
    assert pinned.order == one.order and pinned.losses != one.losses


@pytest.mark.parametrize("flags, data_seed", [([], 7), (["--data.seed=4"], 4)])
def test_a_run_folder_says_which_seeds_it_had(flags, data_seed, tiny_config, precis, tmp_path):
    fast = ["--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--seed_everything=7"]
    precis("fit", "--config", tiny_config, *fast, *flags, "--run_dir", tmp_path / "run").succeeded()
    record = json.loads((tmp_path / "run" / "environment.json").read_text(encoding="utf-8"))
    assert (record["seed"], record["data_seed"]) == (7, data_seed)
    assert "seed_everything: 7" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
