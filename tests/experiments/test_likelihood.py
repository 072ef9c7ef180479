"""Likelihood of references by document."""

import json
import math
import shutil

import pytest
import torch

from datamodules.documents import CorpusError
from experiments.likelihood import compare, main
from experiments.run_folder import load_run


def test_each_document_has_the_likelihood_of_its_tokens(trained, tmp_path, capsys):
    out = tmp_path / "nll.json"
    changes = ["--change", "-", "data.max_target=3"]
    assert main([str(trained), str(trained), "--split", "test", "--out", str(out), *changes]) == 0
    whole, short = json.loads(out.read_text()).values()
    printed = capsys.readouterr().out.splitlines()
    assert f"{sum(whole.values()) / len(whole):.4f} nats per token, {len(whole)} documents" in printed[0]
    difference = sum(short[id] - whole[id] for id in whole) / len(whole)
    assert f"data.max_target=3: {sum(short.values()) / len(short):.4f} nats" in printed[1]
    assert f"difference {difference:+.4f} [" in printed[1]
    run = load_run(trained, eval_batch_size=len(whole))
    run.data.prepare_splits(["test"])
    (batch,) = run.data.test_dataloader()  # all documents at once, with padding
    with torch.no_grad():
        loss = run.model.loss_terms(batch)["nll"].item()
    assert math.isclose(loss, sum(whole.values()) / len(whole), rel_tol=1e-5)
    assert set(batch.ids) == set(whole) and len(set(whole.values())) > 1


def test_runs_on_different_documents_are_refused():
    with pytest.raises(CorpusError, match="two: scored on other documents than one"):
        compare([{"a": 1.0, "b": 2.0}, {"a": 1.0}], ["one", "two"])


def test_a_difference_and_its_interval():
    one = {str(n): float(n % 7) for n in range(50)}
    two = {id: value + 0.5 for id, value in one.items()}
    assert compare([one, two], ["one", "two"])[1].endswith("difference +0.5000 [+0.5000, +0.5000]")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--change", "-", "-"], "--change has 2 entries for 1 runs"),
        (["--change", "max_target=3"], "--change max_target=3: expected data.NAME=VALUE"),
        (["--change", "data.vocab_size=9"], "the data takes vocab_size from the model; give model.vocab_size"),
        (["--change", "data.eval_batch_size=4"], "documents are scored one by one"),
        (["--change", "model.hidden=9"], "hidden"),
        (["--change", "model.hidden_size=["], "expected"),
        (["--split", "val"], "no folder text"),
    ],
)
def test_wrong_arguments_are_named(options, message, trained, tmp_path, capsys):
    folder = trained
    if "--split" in options:
        folder = tmp_path / "run"
        shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("text"))
    assert main([str(folder), *options]) == 1
    assert message in capsys.readouterr().err
