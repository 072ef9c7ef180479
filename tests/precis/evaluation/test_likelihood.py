import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from scipy import stats

from datamodules.documents import UserError
from precis.evaluation.likelihood import compare, main, runs_of
from precis.runs.run_folder import load_run


@pytest.mark.integration
def test_each_document_has_the_likelihood_of_its_tokens(trained, tmp_path, capsys):
    out = tmp_path / "nll.json"
    changes = ["--change", "-", "data.max_target=3"]
    assert main([str(trained), str(trained), "--split", "test", "--out", str(out), *changes]) == 0
    (whole,), (short,) = (list(runs.values()) for runs in json.loads(out.read_text()).values())
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


def by_document(runs: np.ndarray) -> list[dict[str, float]]:
    """Return the values of each run by the id of the document."""
    return [{str(n): value for n, value in enumerate(run)} for run in runs]


def test_the_interval_covers_seeds_that_are_paired_and_the_star_is_after_holms_correction():
    """Runs of one seed differ by d + e with e from the seed alone: its standard error is that of the values of e."""
    rng, gains = np.random.default_rng(0), np.array([0.1, 0.9, 0.5, 0.2, -0.1])
    base = rng.normal(size=(5, 100)) + rng.normal(size=(5, 1))  # seeds differ by more than the systems
    runs = [base, base + rng.normal(0, 0.1, size=(5, 100)) + 1, base + gains[:, None]]
    systems = [by_document(system) for system in runs]
    lines = compare(systems, ["one", "two", "three"])
    numbers = re.search(r"difference (.*) \[(.*), (.*)\], p (\S*), detectable (.*)", lines[2]).groups()
    test = stats.ttest_1samp(gains, 0)
    detectable = (stats.t.ppf(0.975, 4) + stats.t.ppf(0.8, 4)) * gains.std(ddof=1) / 5**0.5
    expected = [gains.mean(), *test.confidence_interval(), test.pvalue, detectable]
    assert "100 documents, 5 seeds" in lines[2] and list(map(float, numbers)) == pytest.approx(expected, abs=1e-4)
    assert "p <0.0001 *, detectable" in lines[1] and test.pvalue > 0.05
    assert " *" not in compare([runs[:1] for runs in systems[:2]], ["one", "two"])[1]  # of a single seed


def test_one_run_counts_for_all_seeds_and_documents_are_the_same():
    one, *several = by_document(np.random.default_rng(0).normal(size=(4, 50)))
    assert compare([[one], several], ["one", "two"]) == compare([[one] * 3, several], ["one", "two"])
    with pytest.raises(UserError, match="two: scored on other documents than one"):
        compare([[{"a": 1.0, "b": 2.0}], [{"a": 1.0}]], ["one", "two"])


@pytest.mark.integration
def test_runs_of_a_pattern_are_its_seeds(trained, tmp_path, capsys):
    for name, seed in (("own_b", 1), ("own_a", 2), ("other_1", 1), ("other_3", 3)):
        shutil.copytree(trained, tmp_path / name)
        config = tmp_path / name / "config.yaml"
        config.write_text(re.sub(r"seed_everything: \d+", f"seed_everything: {seed}", config.read_text()))
    pattern = str(tmp_path / "own_*")
    assert [path.name for path in runs_of(pattern).values()] == ["own_b", "own_a"]
    assert main([pattern, pattern, "--split", "test"]) == 0
    assert "2 seeds; difference +0.0000 [+0.0000, +0.0000]" in capsys.readouterr().out
    for systems, message in (
        ([pattern, str(tmp_path / "other_*")], "have the seeds 1, 3 and 1, 2: differences need the same ones"),
        ([str(tmp_path / "o*_[1b]")], "other_1 and own_b have the same seed"),
        ([str(tmp_path / "none_*")], "none_*: no run folder of this name"),
    ):
        assert main(systems) == 1
        assert message in capsys.readouterr().err
