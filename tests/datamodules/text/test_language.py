"""Texts of many languages: sentences, words, ROUGE, labels, rewards, and segmenters of words."""

import pickle
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from datamodules.documents import UserError
from datamodules.text.language import Language, join_sentences, language_of, length_words, load_segmenter, script_of
from datamodules.text.oracle import greedy_oracle
from datamodules.text.rouge_words import vocabulary
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.metrics.rewards import RewardInputs, RougeReward
from lightning_modules.metrics.rouge import rouge_scores, signature
from precis.files.field_names import guess_fields

# Three sentences in each language, with the marks, joiners and spaces that are particular to it.
TEXTS = {
    "English": ("en", 'He said "yes" (twice). The dogs left at 9:00! Who knows?'),
    "German": ("de", "Er sagte: „Das ist gut.“ Die Straße ist lang. Wir gehen heute nach Hause."),
    "French": ("fr", "L’été arrive ; il fait chaud. « Qui vient ? » demande-t-elle ! Nous partons demain."),
    "Spanish": ("es", "¿Cómo estás? ¡Muy bien, gracias! El niño come una manzana."),
    "Russian": ("ru", "Москва — столица России. Кто там был? Ёлка стоит на улице «Пушкина»."),
    "Greek": ("el", "Πού πας; Η Αθήνα είναι μεγάλη πόλη. Ο καιρός, σήμερα, είναι καλός."),
    "Turkish": ("tr", "İstanbul'da yağmur yağıyor. Işık söndü mü? Çocuklar okula gitti."),
    "Arabic": ("ar", "ذهب الولد إلى المدرسة، ثم عاد. هل وصلت الرسالة؟ نعم، وصلت أمس."),
    "Hebrew": ("he", 'הילד הלך לבית הספר. האם צה"ל הודיע? כן, אתמול.'),
    "Persian": ("fa", "او می‌خواهد به خانه برود. آیا کتاب‌ها رسیدند؟ بله، دیروز."),
    "Hindi": ("hi", "मैं हिन्दी पढ़ता हूँ। क्या वह आएगा? हाँ, कल क्षमा माँगेगा।"),
    "Bengali": ("bn", "আমি বাংলায় গান গাই। সে কি আসবে? হ্যাঁ, আগামীকাল।"),
    "Tamil": ("ta", "நான் தமிழ் படிக்கிறேன். அவன் வருவானா? ஆம், நாளை வருவான்."),
    "Thai": ("th", "วันนี้อากาศดีมาก เราไปสวนสาธารณะ แล้วน้ำท่วมปี 2020"),
    "Chinese": ("zh", "今天天气很好。我们去“公园”！2020年，你来吗？"),
    "Japanese": ("ja", "今日は天気がいい。コーヒーを飲みましょう！「はい」と言った。"),
    "Korean": ("ko", "오늘은 날씨가 좋다. 우리는 공원에 갔다! 너도 올래?"),
    "Vietnamese": ("vi", "Hôm nay trời đẹp. Chúng tôi đi công viên! Bạn có đến không?"),
}
PAGE = Path(__file__).parents[3] / "docs" / "languages.md"


def plain_words(code: str, text: str) -> list[str]:
    """Split a text by the categories of its characters, one by one."""
    text = text.replace("İ", "i").replace("I", "ı") if code == "tr" else text
    words, inside = [], False
    for character in unicodedata.normalize("NFC", text.lower()):
        name = unicodedata.name(character, "")
        is_part = unicodedata.category(character)[0] == "M" or name.startswith(("ZERO WIDTH", "THAI CHARACTER SARA AM"))
        is_letter = unicodedata.category(character)[0] in "LN"
        alone = name.startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI"))
        if is_part or (is_letter and inside and not alone):
            words[-1] += character
        elif is_letter:
            words.append(character)
        inside = is_part or (is_letter and not alone)
    return words


@pytest.mark.parametrize("name", TEXTS)
def test_every_language_is_split_scored_labelled_and_written(name):
    code, text = TEXTS[name]
    language = language_of(code)
    sentences = language.split_sentences(text)
    assert len(sentences) == 3 and join_sentences(sentences) == language.normalize(text)
    words = plain_words(code, text)
    assert code == "en" or language.words(text) == language.words(unicodedata.normalize("NFD", text)) == words
    scores = rouge_scores(sentences, [sentences], ("rouge1", "rouge2", "rougeLsum"), language=code)
    assert all(score.fmeasure == 1 for score in scores.values())
    pair = 100 * rouge_scores(sentences[:2], [sentences[1:]], ("rouge1",), False, language=code)["rouge1"].fmeasure
    plain = [plain_words(code, " ".join(part)) for part in (sentences[:2], sentences[1:])]
    shared = sum((Counter(plain[0]) & Counter(plain[1])).values())
    assert pair == pytest.approx(200 * shared / sum(map(len, plain)))
    assert greedy_oracle(sentences, [[sentences[1]]], language=code) == [1]
    assert RougeReward()(RewardInputs(["a"], [sentences[0]], [[sentences[0]]], language=code)) == [1]
    assert language.detokenize(language.tokenize(text, lowercase=False)) == language.normalize(text)
    for document in ([text, text], [sentences, sentences[:1]]):  # paragraphs, and sentences of paragraphs
        assert guess_fields({"document": document, "summary": [sentences]}, "here").arguments() == {}
    row = f"| {name} | {code} | {len(sentences)} | {len(words)} | 100.0 | {pair:.1f} | yes | yes |"
    assert row in PAGE.read_text(encoding="utf-8"), row


def test_words_of_english_stems_and_texts_that_are_written():
    assert vocabulary().split("Ünï a-b") == [b"n", b"a", b"b"]
    assert Vocabulary(["a"]).state() == {"words": ["a"], "tokenizer": "words", "lowercase": True}
    # graphemes are whole
    assert language_of("xx").tokenize("👩‍👩‍👧 1️⃣ cafe\u0301 क्‍ष 🇩🇪!") == ["👩‍👩‍👧", "1️⃣", "café", "क्‍ष", "🇩🇪", "!"]
    assert language_of("ar").detokenize(language_of("ar").tokenize("٣٫٥ و ١٬٠٠٠")) == "٣٫٥ و ١٬٠٠٠"
    # stems are of the language
    words = vocabulary(language="ru")
    assert words.description == "stem:snowball|tok:ru"
    assert words.encode("столица столицы") == [words["столица"]] * 2
    assert [language_of("ar").stem(word) for word in ("سمعوا", "كتابهم", "سمعوا")] == ["سمع", "كتاب", "سمع"]  # no state
    assert vocabulary(language="tr").description == "stem:none|tok:tr"
    assert [language_of(code).primary for code in ("deu", "zho-Hant", "yue")] == ["de", "zh", "yue"]
    with pytest.raises(ValueError, match="'perl' is English"):
        vocabulary("perl", "ru")
    # a generated text is written in its language
    chinese = Vocabulary(["今", "天"], language="zh")
    assert chinese.sentences(["今", "天", "。", "好"]) == ["今天。", "好"]
    assert Vocabulary(**chinese.state()).language.code == "zh"
    assert length_words("ฝน ตก", "a, b") == [*"ฝนตก", "a,", "b"]
    assert length_words("今天 ok。") == ["今", "天", "ok", "。"] and length_words("a b.") == ["a", "b."]
    # the script of a text suggests a language
    assert script_of([TEXTS["Japanese"][1]]).language == "ja"
    script = script_of([TEXTS["Russian"][1] + " and"])
    assert (script.name, script.language) == ("Cyrillic", "ru") and 0 < script.latin < 0.1
    assert script_of(["123"]) is None


@pytest.mark.parametrize("code, text, words", [
    ("zh:jieba", "我们去公园。2020年，你来吗？OK!", ["我们", "去", "公园", "2020", "年", "你", "来", "吗", "ok"]),
    ("ja:fugashi", "東京に行きます。OK!", ["東京", "に", "行き", "ます", "ok"]),
    ("th:pythainlp", "เราไปสวนสาธารณะ แล้วกลับบ้าน", ["เรา", "ไป", "สวนสาธารณะ", "แล้ว", "กลับบ้าน"]),
])  # fmt: skip
def test_words_and_tokens_are_those_of_the_segmenter(code, text, words):
    pytest.importorskip(code.partition(":")[2])
    language = language_of(code)
    assert language.words(text) == words
    assert [token for token in language.tokenize(text) if token in words] == words
    assert language.detokenize(language.tokenize(text, lowercase=False)) == text
    assert len(language.split_sentences(text)) == len(language_of(language.primary).split_sentences(text))
    assert pickle.loads(pickle.dumps(language)).words(text) == words


def test_rouge_counts_words():
    jieba = pytest.importorskip("jieba")
    one, other = "我们去公园看花", "他们去公园吃饭"
    counts = [Counter(jieba.lcut(text)) for text in (one, other)]
    expected = 2 * (counts[0] & counts[1]).total() / (counts[0] + counts[1]).total()
    score = rouge_scores([one], [[other]], ("rouge1",), language="zh:jieba")["rouge1"].fmeasure
    assert score == pytest.approx(expected)
    assert "|tok:zh:jieba|" in signature("rouge1", language="zh:jieba")
    vocabulary = Vocabulary.build([one], 30, language="zh:jieba")
    assert "公园" in vocabulary.words and Vocabulary(**vocabulary.state()).language is language_of("zh:jieba")


def test_other_codes_and_missing_packages_are_refused(monkeypatch):
    segmenters = "the segmenters of words are zh:jieba, ja:fugashi"
    codes = dict.fromkeys(("zh:mecab", "ru:jieba", "zh-Hant:jieba"), segmenters) | {"Chinese": "give an ISO code"}
    for code, message in codes.items():
        with pytest.raises(UserError, match=f"language '{code}': {message}"):
            language_of(code)
    monkeypatch.setitem(sys.modules, "jieba", None)
    load_segmenter.cache_clear()
    with pytest.raises(UserError, match=r"zh:jieba needs the package jieba .*; run pip install .precis-suite\[jieba\]"):
        Language("zh:jieba")
