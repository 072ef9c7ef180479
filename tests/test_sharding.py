"""Strategy `fsdp2`: two processes that share the weights are one process with twice the batch size."""

import os
from unittest.mock import patch

import pytest
import test_ddp
import torch
from cases import BY_NAME
from quiet_trainer import quiet_trainer
from test_ddp import ANNEALED, assert_equals_one_process, prepare, run_on_one_and_two

from datamodules.documents import UserError

pytestmark = pytest.mark.integration

RUNS = [*((BY_NAME[name], 1, 23) for name in ("agents-m7", "bertsum", "hierarchical", "rstformer")), (ANNEALED, 2, 25)]


def process(*arguments) -> None:
    test_ddp.RUNS, test_ddp.STRATEGY = RUNS, "fsdp2"
    test_ddp.process(*arguments)


@pytest.fixture(scope="module")
def results(server, corpus_files, tmp_path_factory):
    from test_sharding import process as target  # by the name under which a new process finds it

    prepare(corpus_files)
    return run_on_one_and_two(server, target, corpus_files, tmp_path_factory.mktemp("sharded"))


@pytest.mark.parametrize("key", [(case.name, accumulate) for case, accumulate, _ in RUNS], ids=lambda key: key[0])
def test_sharded_training_and_evaluation_equal_one_process(results, key):
    first, second, one = (result[key] for result in results)
    assert first["sharded"] and second["sharded"] and not one["sharded"]
    assert_equals_one_process(first, second, one)
    for part in ("fit", "validate", "test"):
        assert first[part] == second[part] == pytest.approx(one[part], rel=1e-6, abs=1e-9)


@pytest.fixture
def no_trace():
    """Leave neither a group of processes nor its address to later tests, whose processes would take the same port."""
    with patch.dict(os.environ):
        yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name, words", [("graphsum", "log_sigma cannot be sharded"), ("pegasus", "choose AdamW")])
def test_what_cannot_be_sharded_is_named(name, words, corpus_files, no_trace):
    trainer = quiet_trainer(strategy="fsdp2", devices=1, max_steps=1)
    with pytest.raises(UserError, match=f"fsdp2: .*{words}.*--trainer.strategy ddp"):
        trainer.fit(BY_NAME[name].build_model(), BY_NAME[name].build_data(corpus_files))
