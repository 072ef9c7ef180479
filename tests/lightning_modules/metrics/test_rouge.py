import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from datamodules.text.rouge_words import WORDNET_FOLDERS
from lightning_modules.metrics.rouge import VARIANTS, Score, rouge_scores, score_many, signature
from lightning_modules.metrics.rouge_metric import Rouge

GOLDEN = Path(__file__).parents[4] / "shared" / "data" / "rouge_golden"
EVERY = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum")
SCORERS = {stem: RougeScorer(EVERY, use_stemmer=stem) for stem in (True, False)}

# Few words make repeats and ties, where the choice of one longest subsequence shows; the others try the tokenizer.
WORDS = st.sampled_from(
    ["a", "b", "c", "the", "running", "runs", "ponies", "dying", "İstanbul", "naïve", "100km", "K2", "don't", "你好"]
)
SENTENCES = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=4)
REFERENCE = st.lists(st.lists(WORDS, min_size=1, max_size=12).map(" ".join), min_size=1, max_size=4)


def perl_digits(score: Score) -> Score:
    """The five digits that ROUGE-1.5.5 prints: it rounds precision and recall, and takes F of the rounded ones."""
    precision, recall = (float(f"{value:.5f}") for value in score[:2])
    both = (precision + recall) / 2
    return Score(precision, recall, float(f"{precision * recall / both:.5f}") if both else 0.0)


def golden(name: str) -> list[dict]:
    path = GOLDEN / f"{name}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no {path.name} beside the repository")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def reference_scores(prediction: list[str], references: list[list[str]], stem: bool) -> dict:
    return SCORERS[stem].score_multi(["\n".join(reference) for reference in references], "\n".join(prediction))


def assert_same(ours: dict[str, Score], theirs: dict) -> None:
    for variant, score in ours.items():
        assert score == pytest.approx(tuple(theirs[variant]), abs=1e-9), variant


LONG = pytest.param("squality_human_loo_100", marks=pytest.mark.integration)  # `rouge_score` takes half a minute


@pytest.mark.parametrize("name", ["realsumm_bart_100", LONG, "xsum_ptgen_500"])
def test_equals_rouge_score_on_system_outputs(name):
    usual = RougeScorer(VARIANTS, use_stemmer=True)  # every pair; all variants, and no stems, for every tenth
    for number, row in enumerate(golden(name)):
        texts, targets = "\n".join(row["hypothesis"]), ["\n".join(reference) for reference in row["references"]]
        assert_same(rouge_scores(row["hypothesis"], row["references"]), usual.score_multi(targets, texts))
        for stem in (True, False) if number % 10 == 0 else ():
            ours = rouge_scores(row["hypothesis"], row["references"], EVERY, stem=stem)
            assert_same(ours, reference_scores(row["hypothesis"], row["references"], stem))


@pytest.mark.parametrize("name", ["realsumm_bart_100", "squality_human_loo_100", "xsum_ptgen_500"])
@pytest.mark.parametrize(
    "column, stem, mode",
    [("nostem", False, "pooled"), ("stem", "perl", "pooled"), ("stem_best", "perl", "best_recall")],
)
def test_equals_the_digits_that_perl_prints(name, column, stem, mode):
    if stem and not any(Path(folder, "verb.exc").is_file() for folder in WORDNET_FOLDERS):
        pytest.skip("WordNet's exception lists are not installed (Debian: wordnet-base)")
    rows = [row for row in golden(name) if column in row]
    for row in rows:
        ours = rouge_scores(row["hypothesis"], row["references"], stem=stem, multi_reference=mode)
        for variant, perl_name in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rougeLsum", "ROUGE-L")):
            printed = row[column][perl_name]
            assert perl_digits(ours[variant]) == (printed["p"], printed["r"], printed["f"]), (row["id"], variant)


@given(SENTENCES, st.lists(REFERENCE, min_size=1, max_size=3), st.booleans())
@example(["a " * 9 + "b c d"], [["a " * 9, "a " * 8 + "c d b b b b", "a " * 7 + "c c c c"], ["a " * 4]], False)
@settings(max_examples=300)
def test_equals_rouge_score_on_any_words(prediction, references, stem):
    assert_same(rouge_scores(prediction, references, EVERY, stem=stem), reference_scores(prediction, references, stem))


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=200)
def test_equals_rouge_score_on_any_text(prediction, reference):
    lines = [line for line in prediction.split("\n") if line]
    targets = [line for line in reference.split("\n") if line]
    targets = [targets if any(line.strip() for line in targets) else ["x"]]
    assert_same(rouge_scores(lines, targets, EVERY), reference_scores(lines, targets, True))


def test_several_references_long_and_empty_texts_and_repeats_by_hand():
    prediction, references = ["a b c d"], [["a b x y z w"], ["a c"], ["d c b a e f g h"]]
    scores = {
        mode: rouge_scores(prediction, references, ("rouge1", "rouge2"), multi_reference=mode)
        for mode in ("mean", "best", "pooled", "best_rouge1", "best_recall")
    }
    # ROUGE-1 hits 2, 2, 4 of 6, 2, 8 words; ROUGE-2 hits 1, 0, 0 of 5, 1, 7 bigrams.
    assert scores["mean"]["rouge1"] == pytest.approx((8 / 12, (1 / 3 + 1 + 1 / 2) / 3, (0.4 + 2 / 3 + 2 / 3) / 3))
    assert scores["pooled"]["rouge1"] == pytest.approx((8 / 12, 8 / 16, 2 * 8 / 28))
    assert scores["pooled"]["rouge2"] == pytest.approx((1 / 9, 1 / 13, 2 / 22))
    assert scores["best"]["rouge1"] == pytest.approx((2 / 4, 1, 2 / 3))  # the first of two equals
    assert scores["best"]["rouge2"] == pytest.approx((1 / 3, 1 / 5, 0.25))
    assert scores["best_rouge1"]["rouge2"] == (0, 0, 0)
    assert scores["best_recall"]["rouge1"] == pytest.approx((2 / 4, 1, 2 / 3))
    assert rouge_scores(prediction, references, ("rouge2",), multi_reference="best_rouge1")["rouge2"] == (0, 0, 0)
    long = [f"word{index % 977} and {index}" for index in range(300)]
    assert rouge_scores(long, [long])["rouge2"] == (1, 1, 1)
    numbers = [" ".join(map(str, range(0, 20_000, step))) for step in (1, 2)]
    assert rouge_scores(numbers[:1], [numbers[1:]], ("rougeL",))["rougeL"] == pytest.approx((0.5, 1, 2 / 3))
    repeats = rouge_scores(["the " * 5000], [["the cat", "the " * 10]], EVERY)
    assert repeats["rouge1"] == pytest.approx((11 / 5000, 11 / 12, 22 / 5012))
    assert repeats["rouge2"] == pytest.approx((9 / 4999, 9 / 11, 18 / 5010))
    assert repeats["rougeLsum"] == repeats["rougeL"] == repeats["rouge1"]


def test_other_languages_and_processes_and_the_signature_that_says_how():
    text = [["Добрый день", "мир"]]
    with pytest.warns(UserWarning, match="no word in language 'en', and scores 0; set data.language"):
        assert rouge_scores(text[0], text)["rouge1"] == (0, 0, 0)
    assert rouge_scores(["мир"], text, ("rouge1",), language="xx")["rouge1"] == pytest.approx((1, 1 / 3, 0.5))
    assert signature("rougeLsum").startswith("rougeLsum|stem:porter|tok:rouge|split:given|refs:best|precis:")
    pooled = signature("rouge1", stem=False, multi_reference="pooled", language="xx", splitter="sentencex")
    assert pooled.startswith("rouge1|stem:none|tok:xx|split:sentencex|refs:pooled|precis:")
    predictions = [[f"the {index} dogs were running", "home"] for index in range(50)]
    references = [[[f"a dog runs home {index % 7}"], ["dogs run"]] for index in range(50)]
    assert score_many(predictions, references, num_proc=2) == score_many(predictions, references)


def test_metric_is_the_mean_and_counts_empty_predictions_but_no_failed_update():
    predictions, references = [["a cat sat"], [], ["the dogs ran"]], [[["cats sit"]], [["x"]], [["a dog"], ["dogs"]]]
    metric = Rouge(EVERY)
    with torch.inference_mode():  # as in `validate` before `fit`
        metric.update([["a"]], [[["b"]]])
        metric.reset()
    with pytest.raises(ValueError, match="reference 0 of prediction 1 is empty"):
        metric.update([["a"], ["b"]], [[["a"]], [[""]]])
    metric.update(predictions[:1], references[:1])
    metric.update(predictions[1:], references[1:])
    for variant, value in metric.compute().items():
        expected = [reference_scores(*pair, stem=True)[variant].fmeasure for pair in zip(predictions, references)]
        assert value.item() == pytest.approx(100 * sum(expected) / 3, rel=1e-6)
    assert metric.documents.item() == 3 and metric.signatures["rouge2"] == signature("rouge2")


def test_errors_say_what_is_wrong_and_where():
    for call, error, says in [
        (lambda: rouge_scores(["a"], [["a"], ["", " "]]), ValueError, "reference 1 of the prediction is empty"),
        (lambda: score_many([["a"], ["b"]], [[["a"]], [[]]]), ValueError, "reference 0 of prediction 1 is empty"),
        (lambda: score_many([["a"]] * 2, [[["a"]], []], num_proc=2), ValueError, "prediction 1 has no reference"),
        (lambda: score_many([["a"]], []), ValueError, "1 predictions but 0"),
        (lambda: rouge_scores("a text", [["a"]]), TypeError, "lists of sentences"),
        (lambda: rouge_scores(["a"], [["a"]], ["rouge0"]), ValueError, "'rouge0'"),
        (lambda: rouge_scores(["a"], [["a"]], multi_reference="max"), ValueError, "'max'"),
    ]:
        with pytest.raises(error, match=says):
            call()
