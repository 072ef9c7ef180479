import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import change_config, read_lines, write_lines
from rouge_score.rouge_scorer import RougeScorer

from precis.evaluation import scorers
from precis.runs.run_folder import run_documents

sacrebleu = pytest.importorskip("sacrebleu")
GOLDEN = Path(__file__).parents[4] / "shared" / "data" / "rouge_golden"

OUTPUTS = [
    "The otter guards the mill. It never sleeps.",
    "A badger painted the tower red and green.",
    "",
    "The heron, the heron, the heron visits.",
    "Stoats repair orchards at night; nobody knows why.",
]
TARGETS = [
    "The otter guards the old mill every night. It sleeps by day.",
    "The badger paints a tower in red.",
    "A lynx measures the harbour before dawn.",
    "Each morning the heron visits the library.",
    "The stoats repair the orchard at night.",
]
SOURCES = [
    "The otter guards the mill. Nobody else does. It never sleeps.",
    "The old tower was grey. A badger painted the tower red and green last year.",
    "A lynx measures the harbour.",
    "The heron visits the library.",
    "Nobody knows why stoats work at night.",
]


def records(**fields: list) -> list[dict]:
    columns = {"id": [f"doc-{n}" for n in range(5)], "summary": OUTPUTS, "references": TARGETS} | fields
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def by_measure(result: dict, system: str | None = None) -> dict[str, dict]:
    return {row["measure"]: row for row in result["scores"] if row["system"] == system}


@pytest.fixture
def evaluated(precis):
    """Run the command and return its JSON."""

    def run(*arguments: object) -> dict:
        done = precis("evaluate", *arguments, "--json", "--resamples", 200).succeeded()
        return json.loads(done.out)

    return run


def test_scores_equal_those_of_rouge_score_and_sacrebleu(tmp_path, evaluated):
    measures = by_measure(evaluated(write_lines(tmp_path / "out.jsonl", records())))
    rows = read_lines(tmp_path / "out.scores.jsonl")
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for variant in scorer.rouge_types:
        expected = [100 * scorer.score(t, o)[variant].fmeasure for o, t in zip(OUTPUTS, TARGETS)]
        np.testing.assert_allclose([row["scores"][variant] for row in rows], expected, atol=1e-9)
        assert math.isclose(measures[variant]["mean"], np.mean(expected))
        assert measures[variant]["low"] <= measures[variant]["mean"] <= measures[variant]["high"]
    bleu, chrf = sacrebleu.corpus_bleu(OUTPUTS, [TARGETS]), sacrebleu.corpus_chrf(OUTPUTS, [TARGETS])
    assert math.isclose(measures["bleu"]["mean"], bleu.score)
    assert math.isclose(measures["chrf"]["mean"], chrf.score)
    documents = [sacrebleu.sentence_chrf(o, [t]).score for o, t in zip(OUTPUTS, TARGETS)]
    np.testing.assert_allclose([row["scores"]["chrf"] for row in rows], documents)
    documents = [sacrebleu.sentence_bleu(o, [t]).score for o, t in zip(OUTPUTS, TARGETS)]
    np.testing.assert_allclose([row["scores"]["bleu"] for row in rows], documents)
    assert measures["rouge1"]["signature"].startswith("rouge1|stem:porter|tok:rouge|split:auto|refs:best|precis:")
    assert "smooth:exp" in measures["bleu"]["signature"] and sacrebleu.__version__ in measures["bleu"]["signature"]


def test_interval_of_bleu_equals_that_of_resampled_corpora(tmp_path, evaluated):
    path = write_lines(tmp_path / "out.jsonl", records())
    bleu_row = by_measure(evaluated(path, "--metrics", "bleu", "--seed", 4))["bleu"]
    drawn = np.random.default_rng(4).integers(5, size=(200, 5))
    resampled = [sacrebleu.corpus_bleu([OUTPUTS[i] for i in row], [[TARGETS[i] for i in row]]).score for row in drawn]
    np.testing.assert_allclose([bleu_row["low"], bleu_row["high"]], np.quantile(resampled, [0.025, 0.975]))


def test_empty_predictions_score_0_and_are_counted(tmp_path, evaluated, precis):
    path = write_lines(tmp_path / "out.jsonl", records(document=SOURCES))
    result = evaluated(path)
    assert (result["summaries"], result["documents"], result["empty_predictions"]) == (5, 5, 1)
    scores = read_lines(tmp_path / "out.scores.jsonl")[2]["scores"]
    assert scores["rouge1"] == scores["bleu"] == scores["chrf"] == scores["words"] == 0
    assert scores["novel_1"] is None and scores["coverage"] is None
    assert by_measure(result)["rouge1"]["documents"] == 5
    assert by_measure(result)["novel_1"]["documents"] == 4
    done = precis("evaluate", path, "--resamples", 50)
    assert "5 summaries of 5 documents; 1 empty prediction\n" in done.out


def test_plain_text_is_records_line_by_line(tmp_path, evaluated):
    texts = {"o.txt": OUTPUTS, "t": TARGETS, "s": SOURCES}
    plain = [write_lines(tmp_path / name, lines) for name, lines in texts.items()]
    result = evaluated(plain[0], "--references", plain[1], "--documents", plain[2])
    expected = evaluated(write_lines(tmp_path / "out.jsonl", records(document=SOURCES)))
    assert result["scores"] == expected["scores"]
    assert [row["id"] for row in read_lines(tmp_path / "o.txt.scores.jsonl")] == list("12345")
    write_lines(tmp_path / "out.csv", ["id,summary,references", "b,some text,a text"])  # has scores of its own
    evaluated(tmp_path / "out.csv", "--metrics", "length")
    assert json.loads((tmp_path / "out.csv.scores.jsonl").read_text())["id"] == "b"
    # files beside records: by id in records, by line in plain text
    beside = write_lines(tmp_path / "s.jsonl", [{"id": f"doc-{n}", "document": SOURCES[n]} for n in (4, 2, 0, 1, 3)])
    assert evaluated(tmp_path / "out.jsonl", "--documents", beside)["scores"] == expected["scores"]
    bare = write_lines(tmp_path / "bare.jsonl", [{"id": n, "summary": text} for n, text in enumerate(OUTPUTS)])
    assert evaluated(bare, "--references", plain[1], "--documents", plain[2])["scores"] == expected["scores"]


def test_several_references_lists_of_sentences_and_other_names(tmp_path, evaluated):
    rows = [
        {"key": 1, "hypothesis": ["a b", "c d"], "gold": [["a b"], ["c d", "e f"]]},
        {"key": 2, "hypothesis": ["a b c d"], "gold": ["a b c d", "x"]},
    ]
    path = write_lines(tmp_path / "out.jsonl", rows)
    names = ("--fields.id", "key", "--fields.summary", "hypothesis", "--fields.references", "gold")
    measures = by_measure(evaluated(path, *names, "--rouge_parts", "prf", "--stem", "false"))
    # the first: against "a b" P 1/2 R 1, against the other P 1/2 R 1/2; the second is its reference
    assert math.isclose(measures["rouge1"]["mean"], 100 * (2 / 3 + 1) / 2)
    assert math.isclose(measures["rouge1_precision"]["mean"], 75.0)
    assert "|stem:none|" in measures["rouge1_recall"]["signature"]
    assert "split:auto+given" in measures["words"]["signature"]
    mean = by_measure(evaluated(path, *names, "--multi_reference", "mean", "--variants", "rouge1"))
    assert math.isclose(mean["rouge1"]["mean"], 100 * ((2 / 3 + 1 / 2) / 2 + 1 / 2) / 2)
    chrf = by_measure(evaluated(path, *names, "--metrics", "chrf"))["chrf"]
    expected = sacrebleu.CHRF().corpus_score(["a b c d"] * 2, [["a b", "a b c d"], ["c d e f", "x"]]).score
    assert math.isclose(chrf["mean"], expected) and chrf["signature"].startswith("chrf|nrefs:2|")
    both = [write_lines(tmp_path / f"ref{n}", [" ".join(row["gold"][n]) for row in rows]) for n in (0, 1)]
    assert by_measure(evaluated(path, *names, "--references", *both, "--metrics", "chrf"))["chrf"]["documents"] == 2


def test_sentences_of_strings(tmp_path, evaluated):
    rows = [{"id": "x", "summary": "a b<q>c d", "references": "c d\na b"}]
    path = write_lines(tmp_path / "out.jsonl", rows)
    measures = by_measure(evaluated(path, "--separator", "<q>"))
    assert measures["rougeLsum"]["mean"] == 100.0 and measures["rougeL"]["mean"] == 50.0
    expected = RougeScorer(["rougeLsum"]).score("c d\na b", "a b\nc d")["rougeLsum"].fmeasure
    assert expected == 1.0


def test_omitted_metrics_have_reasons(tmp_path, precis, monkeypatch):
    path = write_lines(tmp_path / "out.jsonl", records())
    out = precis("evaluate", path, "--resamples", 50).out
    for line in ("novelty: there are no documents: add --documents FILE or --run RUN", "summac: ", "bertscore: "):
        assert f"left out: {line}" in out
    assert "left out: rouge" not in out and "left out: bleu" not in out
    monkeypatch.setattr(scorers.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'precis-suite[bleu]'" in precis("evaluate", path, "--resamples", 50).out
    problem = "bleu cannot be computed: sacrebleu is not installed"
    precis("evaluate", path, "--metrics", "rouge,bleu").failed_in_one_line(problem)


def test_summac_and_meteor_by_name(tmp_path, evaluated, monkeypatch):
    class Halves:
        """Entailment model that gives every pair of sentences a probability of one half."""

        def __init__(self, name, batch_size, device):
            assert (name, device) == ("some/nli", "cpu")

        def matrices(self, summaries, sources):
            return [torch.tensor([0.5, 0.25, 0.25])[:, None, None].expand(3, 1, len(text)) for text in summaries]

    monkeypatch.setattr("lightning_modules.metrics.summac.EntailmentModel", Halves)
    path = write_lines(tmp_path / "out.jsonl", records(document=SOURCES))
    options = ("--summac_model", "some/nli", "--device", "cpu", "--meteor_synonyms", "false")
    measures = by_measure(evaluated(path, "--metrics", "summac,meteor", *options))
    assert measures["summac"]["mean"] == 20.0  # 0.5 - 0.25 on four of five, the empty one 0
    assert "model:some/nli|kind:zs" in measures["summac"]["signature"]
    assert 0 < measures["meteor"]["mean"] < 100 and "match:exact+stem|" in measures["meteor"]["signature"]


def test_consistency_by_name(tmp_path, evaluated, monkeypatch):
    class Thirds:
        """Classifier that supports every claim with a probability of one third."""

        class_names, supported = ["unsupported", "supported"], 1

        def __init__(self, name, batch_size, device):
            assert (name, device) == ("some/minicheck", "cpu")

        def scores(self, summaries, sources):
            assert all(isinstance(sentence, str) for source in sources for sentence in source)
            return [1 / 3 if summary else 0.0 for summary in summaries]

    monkeypatch.setattr("lightning_modules.metrics.pair_classifier.ConsistencyModel", Thirds)
    path = write_lines(tmp_path / "out.jsonl", records(document=SOURCES))
    options = ("--consistency_model", "some/minicheck", "--device", "cpu")
    consistency = by_measure(evaluated(path, "--metrics", "consistency", *options))["consistency"]
    assert consistency["mean"] == pytest.approx(80 / 3)  # four of five, the empty one 0
    assert "model:some/minicheck|class:supported|chunk:350" in consistency["signature"]


GOOD = {"id": "a", "summary": "some text", "references": "a text"}
BAD = {
    "no id": ([GOOD, {"summary": "x", "references": "y"}], ["out.jsonl:2", "no id", "--fields.id"]),
    "duplicate": ([GOOD, "", GOOD], ["out.jsonl:3", "'a'", "out.jsonl:1", "`system`"]),
    "empty reference": ([GOOD, GOOD | {"id": 2, "references": " "}], ["out.jsonl:2 (id '2')", "reference is empty"]),
    "no summary": ([{"id": 1, "hypothesis": "x"}], ["out.jsonl:1", "'summary'", "hypothesis", "--fields.summary"]),
    "some documents": ([GOOD | {"document": "x"}, GOOD | {"id": 2}], ["out.jsonl:2", "no document"]),
    "surrogate": ([r'{"id": 1, "summary": "\ud800", "references": "x"}'], ["out.jsonl:1", "surrogate"]),
}


def refused(done, folder: Path, before: set[str], *parts: str) -> None:
    """One line with all that it should say, status 1, and nothing written."""
    done.failed_in_one_line(*parts)
    assert not done.out
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("kind", BAD)
def test_bad_records(tmp_path, precis, kind):
    rows, parts = BAD[kind]
    done = precis("evaluate", write_lines(tmp_path / "out.jsonl", rows))
    refused(done, tmp_path, {"out.jsonl"}, *parts)


def test_bad_files(tmp_path, precis):
    write_lines(tmp_path / "o.txt", ["a", "b"])
    write_lines(tmp_path / "short", ["a"])
    write_lines(tmp_path / "out.jsonl", [GOOD])
    write_lines(tmp_path / "other.jsonl", [{"id": "b", "document": "x"}])
    (tmp_path / "latin").write_bytes("a\nfa\xe7ade\n".encode("latin-1"))
    before = {path.name for path in tmp_path.iterdir()}
    cases = [
        (["o.txt", "--references", "short"], ["short: 1 line, but", "o.txt has 2 summaries"]),
        (["o.txt", "--references", "latin"], ["latin:2", "not UTF-8 (byte 0xe7)", "iconv"]),
        (["out.jsonl", "--documents", "other.jsonl"], ["out.jsonl:1 (id 'a')", "other.jsonl has no document"]),
        (["out.jsonl", "--metrics", "rouge,bleau"], ["no metric 'bleau'", "bleu"]),
        (["out.jsonl", "--metrics", "novelty"], ["novelty cannot be computed", "--documents"]),
        (["out.jsonl", "--run", "nowhere"], ["nowhere", "config.yaml"]),
    ]
    for arguments, parts in cases:
        given = [str(tmp_path / part) if (tmp_path / part).exists() else part for part in arguments]
        refused(precis("evaluate", *given), tmp_path, before, *parts)


def test_each_file_is_a_system_with_the_scores_that_it_has_alone(tmp_path, evaluated, precis):
    texts = {f"first{size}": [text[:size] for text in OUTPUTS] for size in (12, 5, 99, 20)}
    files = [write_lines(tmp_path / f"{name}.jsonl", records(summary=outputs)) for name, outputs in texts.items()]
    result = evaluated(*files, "--metrics", "rouge,length")
    assert result["systems"] == list(texts) and result["documents"] == 5
    for path in files:
        written = path.with_suffix(".scores.jsonl").read_text()
        alone = by_measure(evaluated(path, "--metrics", "rouge,length"))
        assert path.with_suffix(".scores.jsonl").read_text() == written
        for measure, row in alone.items():
            assert by_measure(result, path.stem)[measure]["mean"] == pytest.approx(row["mean"])
    out = precis("evaluate", *files, "--metrics", "rouge,length", "--resamples", 50).out
    assert re.findall(r"^\S first(\d+) ", out, re.M) == ["99", "20", "12", "5"]  # by ROUGE
    compared = precis("compare", *files, "--metric=rouge1", "--json").succeeded()
    assert "not recorded" not in compared.out


def test_systems_with_different_documents_are_noted(tmp_path, evaluated):
    files = [write_lines(tmp_path / f"M{size}.jsonl", records()[:size]) for size in (5, 4)]
    (note,) = evaluated(*files, "--metrics", "length")["notes"]
    assert note == "means are over different documents: of 5 documents, M4 4"


@pytest.mark.parametrize(("name", "mode"), [("realsumm_bart_100", "best"), ("squality_human_loo_100", "pooled")])
def test_means_are_perls(tmp_path, evaluated, name, mode):
    path = GOLDEN / f"{name}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    result = evaluated(
        path, "--fields.summary", "hypothesis", "--metrics", "rouge", "--stem", "false",
        "--multi_reference", mode, "--rouge_parts", "prf", "--out", tmp_path / "scores.jsonl",
    )  # fmt: skip
    with gzip.open(path, "rt", encoding="utf-8") as file:
        golden = [json.loads(line)["nostem"] for line in file]
    for ours, theirs in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rougeLsum", "ROUGE-L")):
        for suffix, part in (("_precision", "p"), ("_recall", "r"), ("", "f")):
            expected = 100 * np.mean([row[theirs][part] for row in golden])
            assert abs(by_measure(result)[ours + suffix]["mean"] - expected) < 1e-3


@pytest.mark.integration
def test_documents_beyond_the_limit_of_the_run_are_found(run_folder):
    every = list(run_documents(run_folder, "test")["id"])
    change_config(run_folder / "config.yaml", {"data.init_args.max_eval": 1})
    assert len(every) > 1 and list(run_documents(run_folder, "test")["id"]) == every


MODULE = """
import math
class Shared:
    signature = "exact words"
    def score(self, documents, summaries):
        shares = []
        for document, summary in zip(documents, summaries):
            words = summary.split()
            shares.append(sum(w in document.split() for w in words) / len(words) if words else math.nan)
        return shares
class Short:
    def score(self, documents, summaries):
        return [1.0]
class Words:
    def score(self, documents, summaries):
        return ["good"] * len(summaries)
"""


def test_a_class_of_the_working_folder_is_a_metric(tmp_path, precis, monkeypatch):
    (tmp_path / "metrics_of_mine.py").write_text(MODULE, encoding="utf-8")
    first = {"id": "a", "summary": ["the cat sat", "on mars"], "references": [["a"]], "document": ["the cat sat down"]}
    second = {"id": "b", "summary": ["dogs ran"], "references": [["dogs"]], "document": ["dogs ran away"]}
    write_lines(tmp_path / "predictions.jsonl", [first, second])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = precis("evaluate", "predictions.jsonl", "--metrics", "length,metrics_of_mine.Shared", "--json").succeeded()
    rows = {row["measure"]: row for row in json.loads(done.out)["scores"]}
    assert rows["shared"]["mean"] == pytest.approx((3 / 5 + 1) / 2) and "words" in rows
    assert rows["shared"]["signature"].startswith("shared|metrics_of_mine.Shared|exact words|")
    assert [row["scores"]["shared"] for row in read_lines("predictions.scores.jsonl")] == [0.6, 1.0]
    Path("predictions.scores.jsonl").unlink()
    for name, message in {
        "Short": "1 scores for 2 summaries",
        "Words": "not numbers",
        "Missing": "import path of a class",
    }.items():
        precis("evaluate", "predictions.jsonl", "--metrics", f"metrics_of_mine.{name}").failed_in_one_line(message)
        assert not Path("predictions.scores.jsonl").exists()
