"""Extraction on GUM: what an arm is told, what is held out, and the command on a small made-up treebank."""

import random
from itertools import compress, product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import read_lines, write_lines
from made_up_treebank import made_up_row
from sklearn.linear_model import Ridge
from tiny_models import write_bert

from datamodules.discourse.ablations import OtherDiscourse
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.distributions import decode, to_dense
from datamodules.discourse.records import TreebankDocument
from datamodules.parsing import CorpusDocuments, parse_missing
from experiments.studies.discourse_extraction import documents, halves, long_documents, run, training
from experiments.studies.discourse_extraction.documents import SentenceFeatures, SummarizedDocument, content_f1
from experiments.studies.discourse_extraction.linear import ridge_scores
from experiments.studies.discourse_extraction.ranker import relation_sums
from experiments.studies.discourse_extraction.training import ARMS_BY_NAME, FOLDS, batches_of, in_folds, train_fold
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.command_line.commands import guess_corpus
from precis.config.parsers import load_parser

pytestmark = pytest.mark.integration

RELATIONS = ("cause", "joint")


def features_of(number: int, sentences: int) -> tuple[SummarizedDocument, SentenceFeatures]:
    """A document whose sentence i is the nucleus of the others with a random probability p_i, its planted target."""
    generator = torch.Generator().manual_seed(number)
    units = [(2 * i, 2 * i + 1) for i in range(sentences)]
    text = " ".join("abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(sentences)) + f" {number}"
    units[-1] = (units[-1][0], len(text))
    document = TreebankDocument(id=str(number), text=text, edus=units, sentences=units)
    probability = torch.rand(sentences, 1, 1, generator=generator).expand(-1, sentences, len(RELATIONS)) / 2
    parse = documents.sentence_parse(document, RELATIONS, probability * (1 - torch.eye(sentences)).unsqueeze(-1))
    structures = dict.fromkeys(("gold", "parser", "parser, best tree"), parse)
    vectors = torch.randn(sentences, 6, generator=generator)
    features = SentenceFeatures(vectors, torch.zeros(sentences, 4), torch.rand(sentences), structures)
    return SummarizedDocument(document, ["a b c"], [1]), features


def corpus_of(count: int, sentences: int = 6):
    return in_folds(*zip(*[features_of(number, sentences + number % 3) for number in range(count)]))


def test_a_pair_of_sentences_has_the_mean_of_its_edus_and_targets_ignore_function_words():
    ldd = torch.rand(5, 5, 2, generator=torch.Generator().manual_seed(1))
    edus, sentences = torch.tensor([[0, 2], [2, 4], [4, 6], [6, 8], [8, 9]]), torch.tensor([[0, 4], [4, 5], [5, 9]])
    # the third one begins in the second sentence and ends in the third
    edus_of = [slice(0, 2), slice(2, 3), slice(3, 5)]
    result = documents.over_sentences(ldd, edus, sentences)
    for s, t in product(range(3), repeat=2):
        expected = ldd[edus_of[s], edus_of[t]].mean((0, 1)) if s != t else torch.zeros(2)
        assert torch.allclose(result[s, t], expected, atol=1e-6)
    # of targets: "otters swim" is stemmed to two words, of which the first summary has both and the second none
    assert content_f1("The otters swim in the river.", ["An otter swims.", "A fox."]) == pytest.approx((0.8 + 0) / 2)


def test_controls_keep_values_or_take_another_document():
    rows = [features_of(number, 6)[1] for number in range(4)]
    others = OtherDiscourse(5, 0, [row.structures["gold"] for row in rows])
    names = ("gold", "gold, permuted", "gold, other")
    gold, *controls = (training.bands_of(ARMS_BY_NAME[name], rows, 5, others) for name in names)
    for number, (row, own, permuted, other) in enumerate(zip(rows, gold, *controls)):
        assert torch.equal(own, decode(row.structures["gold"].ldd))
        assert not torch.equal(permuted, own) and torch.equal(permuted.flatten().sort()[0], own.flatten().sort()[0])
        assert any(torch.equal(other, gold[k]) for k in range(4) if k != number)


def test_documents_that_are_held_out_are_parsed_by_another_parser_and_change_no_ranker():
    folders = [Path("fold-0"), Path("fold-1")]
    parser_of = documents.out_of_fold(folders, [["b", "c"], ["a"]], ["a", "b", "c", "unseen", "unseen too"])
    assert [parser_of[id].name for id in ("a", "b", "c")] == ["fold-1", "fold-0", "fold-0"]
    assert {parser_of["unseen"], parser_of["unseen too"]} == set(folders)
    corpus = corpus_of(2 * FOLDS, sentences=4)
    assert [corpus.folds.count(fold) for fold in range(FOLDS)] == [2] * FOLDS
    assert [len(row.target) for row in corpus.features] == [len(row.document.sentences) for row in corpus.documents]
    held_out = torch.tensor(corpus.folds) == 3
    arm, scores = ARMS_BY_NAME["gold"], []
    for factor in (0.0, 1.0):
        batches = batches_of(arm, corpus)
        for batch, rows in zip(batches, held_out.split(16)):
            batch.target[rows] = factor
        rankers = train_fold(arm, "vectors", batches, held_out, [1, 2], epochs=1)
        scores.append(torch.cat([rankers(batch).detach().flatten() for batch in batches]))
    assert torch.equal(*scores)


def test_the_ranker_reads_a_planted_tree_and_not_another_document_s():
    corpus = corpus_of(64, sentences=10)
    means = {}
    for name in ("gold", "gold, other", "gold, sums as inputs"):
        arm = ARMS_BY_NAME[name]
        batches = batches_of(arm, corpus, planted=True)
        rankers = train_fold(arm, "discourse alone", batches, torch.tensor(corpus.folds) == 0, [1], epochs=25)
        rows = [row[mask] for batch in batches for row, mask in zip(rankers(batch)[0].detach(), batch.mask)]
        measured = zip(training.measure(rows, corpus, planted=True), corpus.folds)
        means[name] = np.mean([correlation for (correlation, *_), fold in measured if fold == 0])
    assert min(means["gold"], means["gold, sums as inputs"]) > 0.6 and abs(means["gold, other"]) < 0.4


def test_the_linear_ranker_is_ridge_regression_on_sums_of_relations_of_the_other_folds():
    corpus = corpus_of(2 * FOLDS)
    batches = batches_of(ARMS_BY_NAME["gold"], corpus)
    scores = ridge_scores("discourse alone", batches, corpus)
    rows, targets = [], []
    for row in corpus.features:
        ldd = to_dense(decode(row.structures["gold"].ldd)).sum(-1).numpy()
        sums = np.stack([ldd.mean(1), ldd.mean(0)], 1)
        values = np.hstack([sums, np.log(sums + 0.01)])
        rows.append(values - values.mean(0))
        targets.append((row.target - row.target.mean()).numpy())
    for fold in (0, 7):
        others = np.array(corpus.folds) != fold
        x, y = (np.concatenate(list(compress(values, others))) for values in (rows, targets))
        scale = np.sqrt((x**2).mean(0))
        model = Ridge(alpha=100.0, fit_intercept=False).fit(x / scale, y)
        for number in np.flatnonzero(~others):
            assert np.allclose(scores[number], model.predict(rows[number] / scale), atol=1e-5)
    # sums of relations are those of the pairs
    batch = batches[0]
    for sums, band, mask in zip(relation_sums(batch.band), batch.band, batch.mask):
        size = int(mask.sum())
        ldd = to_dense(band)[:size, :size]
        torch.testing.assert_close(sums[:size], torch.cat([ldd.mean(1), ldd.mean(0)], 1))  # nucleus, satellite


def test_documents_of_the_published_corpora_are_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "BACKGROUND\nOtters swim.\nThey dive.\nmethods\nWe looked."
    article = {"id": "a", "document": text, "summary": "Otters swim."}
    stories = [{"id": f"1#{n}", "question": "?", "document": "Once.", "summaries": [f"Plot {n}."]} for n in (1, 2)]
    long_documents.main([str(write_lines(Path("a.jsonl"), [article])), str(write_lines(Path("s.jsonl"), stories))])
    (written,) = read_lines("articles.jsonl")
    assert written["document"].split("\n\n") == ["BACKGROUND", "Otters swim. They dive. ", "methods", "We looked."]
    assert [row["summaries"] for row in read_lines("stories.jsonl")] == [["Plot 1."]]
    halves.main(["s.jsonl"])
    assert [row["id"] for half in (0, 1) for row in read_lines(f"half-{half}.jsonl")] == ["1#1", "1#2"]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """Arguments of the command for two files of documents with summaries, tiny parsers and a tiny encoder."""
    folder, rng = tmp_path_factory.mktemp("gum"), random.Random(0)
    for split, numbers in (("train", range(9)), ("val", range(9, 12))):
        rows = [made_up_row(number, 4 + number % 3) for number in numbers]
        for row in rows:
            start, end = rng.choice(row["sentences"])
            row |= {"summaries": [row["text"][start:end], "A machine wrote this."], "summary_sources": ["human", "llm"]}
        write_lines(folder / f"{split}.jsonl", rows)
    torch.manual_seed(0)
    for number in range(2):
        DiscourseParser(hidden_size=8, fit_size=2).save(folder / f"parsers/fold-{number}")
    words = sorted({word for number in range(12) for word in made_up_row(number, 6)["text"].split()})
    sizes = {"hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 256}
    write_bert(folder / "encoder", words, model_max_length=256, **sizes)
    paths = {"train": "train.jsonl", "val": "val.jsonl"} | {name: name for name in ("parsers", "encoder", "out")}
    return [*(f"--{name}={folder / path}" for name, path in paths.items()), "--seeds=[1, 2]", "--epochs=1"]


def test_the_command_ranks_by_all_arms_and_goes_on_where_it_stopped(arguments, capsys, monkeypatch):
    run.main([*arguments, "--inputs=[vectors]"])
    page = capsys.readouterr().out
    assert all(f"| vectors | {arm.name} | 2 | " in page for arm in training.ARMS if not arm.by_relation)
    monkeypatch.setattr(run, "cross_validate", None)  # would raise
    monkeypatch.setattr(run, "treebank_features", lambda *_: pytest.fail("features are computed again"))
    run.main([*arguments, "--inputs=[vectors]"])
    assert capsys.readouterr().out == page
    with pytest.raises(TypeError):  # of the planted task there are no scores yet
        run.main([*arguments, "--inputs=[vectors]", "--planted=true"])


@pytest.fixture
def corpus_arguments(arguments, tmp_path, monkeypatch):
    """Arguments of the command for a corpus of 12 documents, which `parse_missing` has parsed."""
    monkeypatch.setenv("PRECIS_CACHE", str(tmp_path / "cache"))
    folder = Path(dict(argument.split("=", 1) for argument in arguments)["--parsers"]) / "fold-0"
    rows = []
    for number in range(12):
        made_up = made_up_row(number, 6)
        sentences = [made_up["text"][start:end] for start, end in made_up["sentences"]]
        rows.append({"id": f"doc-{number}", "document": "\n\n".join(sentences), "summary": sentences[number % 3]})
    single = {"id": "one sentence", "document": "Otters swim.", "summary": "Otters swim."}
    path = write_lines(tmp_path / "corpus.jsonl", [*rows, single])
    corpus = CorpusDocuments(guess_corpus(path), tmp_path / "cache")
    parse_missing(corpus, ParseCache(tmp_path / "parses"), load_parser(str(folder), "side", 128))
    encoder = next(argument for argument in arguments if argument.startswith("--encoder"))
    return [
        f"--corpus=[{path}]", f"--parser={folder}", f"--parses={tmp_path / 'parses'}", f"--out={tmp_path / 'out'}",
        encoder, "--number=1", "--ranker=linear", "--inputs=[discourse alone, vectors]",
    ]  # fmt: skip


def test_the_command_ranks_the_sentences_of_a_corpus(corpus_arguments, capsys, monkeypatch):
    run.main(corpus_arguments)
    page, messages = capsys.readouterr()
    assert page.startswith("12 documents, ") and "skipped: 1 document " in messages
    assert "| discourse alone | parser | 1 | " in page and "| vectors | parser, by relation - " in page
    assert "gold" not in page
    monkeypatch.setattr(run, "features_of_corpus", lambda *_: pytest.fail("features are computed again"))
    monkeypatch.setattr(run, "ridge_scores", None)  # would raise
    run.main(corpus_arguments)
    assert capsys.readouterr().out == page


def test_scores_of_another_extractor_are_an_input(corpus_arguments, tmp_path, capsys):
    """Scores that are the targets are worth more than all else."""
    paths = dict(argument.removeprefix("--").split("=", 1) for argument in corpus_arguments)
    predictions = []
    for row in read_lines(paths["corpus"][1:-1]):
        values = [content_f1(sentence, [row["summary"]]) for sentence in row["document"].split("\n\n")]
        predictions.append({"id": row["id"], "sentence_scores": values})
    files = [write_lines(tmp_path / f"{half}.jsonl", predictions[half::2]) for half in (0, 1)]
    correlations = []
    for scores in ([], [f"--scores=[{files[0]}, {files[1]}]"]):
        run.main([*corpus_arguments, *scores, "--inputs=[vectors and places]", f"--out={tmp_path / str(len(scores))}"])
        page = capsys.readouterr().out
        row = next(line for line in page.splitlines() if line.startswith("| vectors and places | none |"))
        correlations.append(float(row.split("|")[4]))
    assert correlations[1] > correlations[0] + 0.3
