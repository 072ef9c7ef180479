"""Sentences that the run of an extractive model proposes to MatchSum."""

import shutil

import pytest
from conftest import change_config

from datamodules.corpora import Texts
from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.matchsum import MatchSumData
from precis.runs.run_folder import load_run
from precis.training.run_scorer import RunScorer


def test_a_run_proposes_what_its_model_scores_if_it_scores_sentences(extractive, trained):
    with pytest.raises(UserError, match="PointerGenerator scores no sentences; give a run of BertSum"):
        RunScorer(trained).sentence_scores([])
    run = load_run(extractive)
    batch = next(iter(run.data.val_dataloader()))
    expected = dict(zip(batch.ids, run.model.sentence_scores(batch)))
    documents = [as_document(row) for row in run.data.documents("val")]
    for size, pool in ((1, 512), (10_000, 512), (10_000, 2)):
        proposed = RunScorer(extractive, size, pool).sentence_scores(documents)
        for document, scores in zip(documents, proposed, strict=True):
            if document.id in expected:
                assert scores == pytest.approx(expected[document.id], abs=1e-5)


def test_sentences_that_a_run_could_not_score_are_proposed_last(extractive, tmp_path):
    run = shutil.copytree(extractive, tmp_path / "run")
    change_config(run / "config.yaml", {"data.init_args.min_words": 3, "data.init_args.max_words": 6})
    sentences = ["Boats.", "A storm hit.", "It was the longest storm that anybody could remember.", "Rain fell on."]
    documents = [Document("mixed", [sentences]), Document("short", [["Boats.", "Rain."]])]
    mixed, short = RunScorer(run).sentence_scores(documents)
    assert mixed[0] == mixed[2] == 0 < min(mixed[1], mixed[3])
    assert min(short) > 0, "where no sentence is of a good length, all are candidates"
    assert RunScorer(run).fingerprint == RunScorer(extractive).fingerprint
    assert MatchSumData(Texts([]), RunScorer(run), keep=2, sizes=[2], checkpoint=None).choices(mixed) == [[1, 3]]
