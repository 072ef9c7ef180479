import pickle
import sys
from collections import Counter

import pytest

from datamodules.documents import UserError
from datamodules.text.language import Language, language_of
from datamodules.text.segmenters import load_segmenter
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.metrics.rouge import rouge_scores, signature

# A text of each language, and its words by the segmenter.
TEXTS = {
    "zh:jieba": ("我们去公园。2020年，你来吗？OK!", ["我们", "去", "公园", "2020", "年", "你", "来", "吗", "ok"]),
    "ja:fugashi": ("東京に行きます。OK!", ["東京", "に", "行き", "ます", "ok"]),
    "th:pythainlp": ("เราไปสวนสาธารณะ แล้วกลับบ้าน", ["เรา", "ไป", "สวนสาธารณะ", "แล้ว", "กลับบ้าน"]),
}


@pytest.fixture(params=TEXTS)
def segmented(request) -> tuple[Language, str, list[str]]:
    pytest.importorskip(request.param.partition(":")[2])
    return language_of(request.param), *TEXTS[request.param]


def test_words_and_tokens_are_those_of_the_segmenter(segmented):
    language, text, words = segmented
    assert language.words(text) == words
    tokens = language.tokenize(text)
    assert [token for token in tokens if token in words] == words
    assert language.detokenize(language.tokenize(text, lowercase=False)) == text
    assert len(language.split_sentences(text)) == len(language_of(language.primary).split_sentences(text))
    restored = pickle.loads(pickle.dumps(language))
    assert restored.words(text) == words


def test_rouge_counts_words():
    jieba = pytest.importorskip("jieba")
    one, other = "我们去公园看花", "他们去公园吃饭"
    counts = [Counter(jieba.lcut(text)) for text in (one, other)]
    expected = 2 * (counts[0] & counts[1]).total() / sum(count.total() for count in counts)
    score = rouge_scores([one], [[other]], ("rouge1",), language="zh:jieba")["rouge1"].fmeasure
    assert score == pytest.approx(expected)
    assert score != rouge_scores([one], [[other]], ("rouge1",), language="zh")["rouge1"].fmeasure
    assert "|tok:zh:jieba|" in signature("rouge1", language="zh:jieba")
    vocabulary = Vocabulary.build([one], 30, language="zh:jieba")
    assert "公园" in vocabulary.words and Vocabulary(**vocabulary.state()).language is language_of("zh:jieba")


@pytest.mark.parametrize("code", ["zh:mecab", "ru:jieba", "zh-Hant:jieba"])
def test_other_segmenters_are_refused(code):
    with pytest.raises(UserError, match=f"language '{code}': the segmenters of words are zh:jieba, ja:fugashi"):
        language_of(code)


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    load_segmenter.cache_clear()
    with pytest.raises(UserError, match=r"zh:jieba needs the package jieba .*; run pip install .precis-suite\[jieba\]"):
        Language("zh:jieba")
