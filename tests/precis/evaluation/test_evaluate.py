import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import read_lines, write_lines
from rouge_score.rouge_scorer import RougeScorer

from precis.evaluation import scorers

sacrebleu = pytest.importorskip("sacrebleu")

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
    return lambda *arguments: json.loads(precis("evaluate", *arguments, "--json", "--resamples", 200).succeeded().out)


def test_scores_equal_those_of_rouge_score_and_sacrebleu(tmp_path, evaluated):
    path = write_lines(tmp_path / "out.jsonl", records())
    measures, rows = by_measure(evaluated(path)), read_lines(tmp_path / "out.scores.jsonl")
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for variant in scorer.rouge_types:
        expected = [100 * scorer.score(t, o)[variant].fmeasure for o, t in zip(OUTPUTS, TARGETS)]
        np.testing.assert_allclose([row["scores"][variant] for row in rows], expected, atol=1e-9)
        assert math.isclose(measures[variant]["mean"], np.mean(expected))
        assert measures[variant]["low"] <= measures[variant]["mean"] <= measures[variant]["high"]
    for name in ("bleu", "chrf"):
        corpus, sentence = (getattr(sacrebleu, f"{level}_{name}") for level in ("corpus", "sentence"))
        assert math.isclose(measures[name]["mean"], corpus(OUTPUTS, [TARGETS]).score)
        documents = [sentence(output, [target]).score for output, target in zip(OUTPUTS, TARGETS)]
        np.testing.assert_allclose([row["scores"][name] for row in rows], documents)
    assert measures["rouge1"]["signature"].startswith("rouge1|stem:porter|tok:rouge|split:auto|refs:best|precis:")
    assert "smooth:exp" in measures["bleu"]["signature"] and sacrebleu.__version__ in measures["bleu"]["signature"]

    bleu = by_measure(evaluated(path, "--metrics", "bleu", "--seed", 4))["bleu"]
    drawn = np.random.default_rng(4).integers(5, size=(200, 5))
    resampled = [sacrebleu.corpus_bleu([OUTPUTS[i] for i in row], [[TARGETS[i] for i in row]]).score for row in drawn]
    np.testing.assert_allclose([bleu["low"], bleu["high"]], np.quantile(resampled, [0.025, 0.975]))


def test_empty_predictions_score_0_and_plain_text_is_records_line_by_line(tmp_path, evaluated, precis):
    path = write_lines(tmp_path / "out.jsonl", records(document=SOURCES))
    result, scores = evaluated(path), read_lines(tmp_path / "out.scores.jsonl")[2]["scores"]
    assert (result["summaries"], result["documents"], result["empty_predictions"]) == (5, 5, 1)
    assert scores["rouge1"] == scores["bleu"] == scores["chrf"] == scores["words"] == 0
    assert scores["novel_1"] is None and scores["coverage"] is None
    assert [by_measure(result)[name]["documents"] for name in ("rouge1", "novel_1")] == [5, 4]
    assert "5 summaries of 5 documents; 1 empty prediction\n" in precis("evaluate", path, "--resamples", 50).out
    packed, expected = tmp_path / "packed.jsonl.gz", result["scores"]
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert evaluated(packed, "--out", tmp_path / "packed.scores.jsonl")["scores"] == expected

    texts = {"o.txt": OUTPUTS, "t": TARGETS, "s": SOURCES}
    outputs, *beside = [write_lines(tmp_path / name, lines) for name, lines in texts.items()]
    beside = ["--references", beside[0], "--documents", beside[1]]
    assert evaluated(outputs, *beside)["scores"] == expected
    assert [row["id"] for row in read_lines(tmp_path / "o.txt.scores.jsonl")] == list("12345")
    write_lines(tmp_path / "out.csv", ["id,summary,references", "b,[some] text,'a' [text]"])  # has scores of its own
    evaluated(tmp_path / "out.csv", "--metrics", "length")
    assert read_lines(tmp_path / "out.csv.scores.jsonl")[0]["id"] == "b"
    # files beside records: by id in records, by line in plain text
    sources = write_lines(tmp_path / "s.jsonl", [{"id": f"doc-{n}", "document": SOURCES[n]} for n in (4, 2, 0, 1, 3)])
    assert evaluated(tmp_path / "out.jsonl", "--documents", sources)["scores"] == expected
    bare = write_lines(tmp_path / "bare.jsonl", [{"id": n, "summary": text} for n, text in enumerate(OUTPUTS)])
    assert evaluated(bare, *beside)["scores"] == expected


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
    # pooled: 4 of 8 words against 6 of the references, and 4 of 8 against 5
    for mode, expected in (("mean", (2 / 3 + 1 / 2) / 2 + 1 / 2), ("pooled", 2 * 4 / 14 + 2 * 4 / 13)):
        scores = by_measure(evaluated(path, *names, "--multi_reference", mode, "--variants", "rouge1"))
        assert math.isclose(scores["rouge1"]["mean"], 100 * expected / 2)
    chrf = by_measure(evaluated(path, *names, "--metrics", "chrf"))["chrf"]
    expected = sacrebleu.CHRF().corpus_score(["a b c d"] * 2, [["a b", "a b c d"], ["c d e f", "x"]]).score
    assert math.isclose(chrf["mean"], expected) and chrf["signature"].startswith("chrf|nrefs:2|")
    both = [write_lines(tmp_path / f"ref{n}", [" ".join(row["gold"][n]) for row in rows]) for n in (0, 1)]
    assert by_measure(evaluated(path, *names, "--references", *both, "--metrics", "chrf"))["chrf"]["documents"] == 2

    # sentences of strings
    path = write_lines(tmp_path / "out.jsonl", [{"id": "x", "summary": "a b<q>c d", "references": "c d\na b"}])
    measures = by_measure(evaluated(path, "--separator", "<q>"))
    assert measures["rougeLsum"]["mean"] == 100.0 and measures["rougeL"]["mean"] == 50.0
    assert RougeScorer(["rougeLsum"]).score("c d\na b", "a b\nc d")["rougeLsum"].fmeasure == 1.0


def test_omitted_metrics_have_reasons_and_each_file_is_a_system(tmp_path, precis, monkeypatch, evaluated):
    path = write_lines(tmp_path / "out.jsonl", records())
    out = precis("evaluate", path, "--resamples", 50).out
    for line in ("novelty: there are no documents: add --documents FILE or --run RUN", "summac: ", "bertscore: "):
        assert f"left out: {line}" in out
    assert "left out: rouge" not in out and "left out: bleu" not in out
    monkeypatch.setattr(scorers.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'precis-suite[bleu]'" in precis("evaluate", path, "--resamples", 50).out
    problem = "bleu cannot be computed: sacrebleu is not installed"
    precis("evaluate", path, "--metrics", "rouge,bleu").failed_in_one_line(problem)
    monkeypatch.undo()
    texts = {f"first{size}_{'x' * 70}": [text[:size] for text in OUTPUTS] for size in (12, 5, 99, 20)}
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
    assert re.findall(r"^\S first(\d+)_", out, re.M) == ["99", "20", "12", "5"] and "…" not in out  # by ROUGE, whole
    assert "not recorded" not in precis("compare", *files, "--metric=rouge1", "--json").succeeded().out
    compared = precis("compare", *files, "--metric=rouge1", f"--baseline={files[1]}").out
    assert f"{files[3]} --html page.html --baseline={files[1]} --metric=rouge1\n" in compared  # not another comparison
    assert f"next: precis compare {files[0]} {files[1]} {files[2]} {files[3]} --html page.html" in out
    [note] = evaluated(files[0], "--metrics", "length")["notes"]
    assert note.startswith(f"{files[0].with_suffix('.scores.jsonl')} no longer has rouge1, rouge2, rougeL")
    done = precis("evaluate", files[0], "--metrics", "length", "--resamples", 50)
    precis(*done.out.partition("next: precis ")[2].split()[:-1], tmp_path / "page.html").succeeded()
    files = [write_lines(tmp_path / f"M{size}.jsonl", records()[:size]) for size in (5, 4)]
    note = "means are over different documents: of 5 documents, M4 4"
    assert evaluated(*files, "--metrics", "length")["notes"] == [note]


class Halves:
    """An entailment model with a half for each pair and a quarter for the other classes; a classifier with a third."""

    class_names, supported = ["unsupported", "supported"], 1

    def __init__(self, name, batch_size, device):
        assert name in ("some/nli", "some/minicheck") and device == "cpu"

    def matrices(self, summaries, sources):
        return [torch.tensor([0.5, 0.25, 0.25])[:, None, None].expand(3, 1, len(text)) for text in summaries]

    def scores(self, summaries, sources):
        assert all(isinstance(sentence, str) for source in sources for sentence in source)
        return [1 / 3 if summary else 0.0 for summary in summaries]


def test_metrics_of_models_meteor_and_a_class_of_the_working_folder(tmp_path, evaluated, monkeypatch, precis):
    monkeypatch.setattr("lightning_modules.metrics.summac.EntailmentModel", Halves)
    monkeypatch.setattr("lightning_modules.metrics.pair_classifier.ConsistencyModel", Halves)
    path = write_lines(tmp_path / "out.jsonl", records(document=SOURCES))
    models = ("--summac_model", "some/nli", "--consistency_model", "some/minicheck", "--device", "cpu")
    names = ("--metrics", "summac,consistency,meteor", "--meteor_synonyms", "false")
    for language, words in (("en", "|"), ("de", "|tok:de|")):
        measures = by_measure(evaluated(path, *names, *models, "--language", language))
        assert measures["summac"]["mean"] == 20.0  # 0.5 - 0.25 on four of five, the empty one 0
        assert f"model:some/nli|kind:zs{words}split" in measures["summac"]["signature"]
        assert measures["consistency"]["mean"] == pytest.approx(80 / 3)  # four of five, the empty one 0
        assert f"model:some/minicheck|class:supported|chunk:350{words}split" in measures["consistency"]["signature"]
        assert 0 < measures["meteor"]["mean"] < 100 and f"exact+stem{words}refs:" in measures["meteor"]["signature"]
    (tmp_path / "metrics_of_mine.py").write_text(MODULE, encoding="utf-8")
    first = {"id": "a", "summary": ["the cat sat", "on mars"], "references": [["a"]], "document": ["the cat sat down"]}
    second = {"id": "b", "summary": ["dogs ran"], "references": [["dogs"]], "document": ["dogs ran away"]}
    write_lines(tmp_path / "predictions.jsonl", [first, second])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = precis("evaluate", "predictions.jsonl", "--metrics", "length,metrics_of_mine.Shared", "--json").succeeded()
    rows = by_measure(json.loads(done.out))
    assert rows["shared"]["mean"] == pytest.approx((3 / 5 + 1) / 2) and "words" in rows
    assert rows["shared"]["signature"].startswith("shared|metrics_of_mine.Shared|exact words|")
    assert [row["scores"]["shared"] for row in read_lines("predictions.scores.jsonl")] == [0.6, 1.0]
    Path("predictions.scores.jsonl").unlink()
    for name, message in {"Short": "1 scores for 2 summaries", "Missing": "import path of a class"}.items():
        precis("evaluate", "predictions.jsonl", "--metrics", f"metrics_of_mine.{name}").failed_in_one_line(message)
        assert not Path("predictions.scores.jsonl").exists()


GOOD = {"id": "a", "summary": "some text", "references": "a text"}


def test_bad_records_and_files_are_named_in_one_line_and_nothing_is_written(tmp_path, precis):
    bad = (
        ([GOOD, {"summary": "x", "references": "y"}], ["bad0.jsonl:2", "no id", "--fields.id"]),
        ([GOOD, "", GOOD], ["bad1.jsonl:3", "'a'", "bad1.jsonl:1", "`system`"]),
        ([GOOD, GOOD | {"id": 2, "references": " "}], ["bad2.jsonl:2 (id '2')", "reference is empty"]),
        ([GOOD | {"document": "x"}, GOOD | {"id": 2}], ["bad3.jsonl:2", "no document"]),
        ([r'{"id": 1, "summary": "\ud800", "references": "x"}'], ["bad4.jsonl:1", "surrogate"]),
    )
    cases = [([write_lines(tmp_path / f"bad{number}.jsonl", rows)], parts) for number, (rows, parts) in enumerate(bad)]
    for number, references in enumerate((["a", "b"], np.array(["a", "b"]), [["a"], ["b", "c"]], [], '["a"]')):
        pd.DataFrame([GOOD | {"references": references}]).to_csv(tmp_path / f"list{number}.csv")
        cases.append(([f"list{number}.csv"], [f"list{number}.csv:2: field 'references' is a list"]))
    others = {"o.txt": ["a", "b"], "short": ["a"], "out.jsonl": [GOOD], "other.jsonl": [{"id": "b", "document": "x"}]}
    for name, rows in others.items():
        write_lines(tmp_path / name, rows)
    (tmp_path / "latin").write_bytes("a\nfa\xe7ade\n".encode("latin-1"))
    before = sorted(tmp_path.iterdir())
    for arguments, parts in (
        *cases,
        (["o.txt", "--references", "short"], ["short: 1 line, but", "o.txt has 2 summaries"]),
        (["o.txt", "--references", "latin"], ["latin:2", "not UTF-8 (byte 0xe7)", "iconv"]),
        (["out.jsonl", "--documents", "other.jsonl"], ["out.jsonl:1 (id 'a')", "other.jsonl has no document"]),
        (["out.jsonl", "--metrics", "novelty"], ["novelty cannot be computed", "--documents"]),
        (["out.jsonl", "--metrics", "rouge", "--variants", ","], ["--variants ','", "names no variant"]),
    ):
        paths = [tmp_path / part if (tmp_path / part).exists() else part for part in arguments]
        done = precis("evaluate", *paths)
        done.failed_in_one_line(*parts)
        assert not done.out and sorted(tmp_path.iterdir()) == before


MODULE = """
class Shared:
    signature = "exact words"
    def score(self, documents, summaries):
        pairs = [(document.split(), summary.split()) for document, summary in zip(documents, summaries)]
        return [sum(word in document for word in summary) / len(summary) for document, summary in pairs]
class Short:
    def score(self, documents, summaries):
        return [1.0]
"""
