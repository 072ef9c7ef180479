import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datamodules.documents import UserError
from datamodules.graphsum import GraphTokenizer
from datamodules.text.subword_tokenizer import SMALLEST, SubwordTokenizer

TEXTS = ["The otter guards the mill.", "Every otter guards a mill, and naïve herons watch.", "The 😀 otter."] * 3


@pytest.fixture(scope="module")
def text():
    return SubwordTokenizer.build(TEXTS, SMALLEST + 40)


def test_any_text_comes_back(text):
    for given in [*TEXTS, "zebra \U0001f9a6 Ωmega", "", "</s> spells <pad> and <s>"]:
        ids, offsets = text(given)
        assert text.decode(ids) == given.strip()
        assert len(ids) == len(offsets) and not {text.start, text.pad, text.stop} & set(ids)


def test_offsets_are_characters_in_order_and_cover_what_is_visible(text):
    for given in [*TEXTS, "a naïve 😀 heron"]:
        ids, offsets = text(given)
        assert offsets == sorted(offsets)
        covered = {at for start, end in offsets for at in range(start, end)}
        assert {at for at, character in enumerate(given) if not character.isspace()} <= covered
        for token, (start, end) in zip(ids, offsets):
            piece = text.decode([token])
            assert "\ufffd" in piece or piece == given[start:end].strip()


def test_saved_loaded_and_from_a_state(text, tmp_path):
    text.save(tmp_path)
    for other in (SubwordTokenizer.load(tmp_path), SubwordTokenizer.from_state(text.state())):
        assert other.state() == text.state() and other("The </s> otter") == text("The </s> otter")
    PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")).save_pretrained(tmp_path / "released")
    assert SubwordTokenizer.of_checkpoint(str(tmp_path / "released"))("The otter") == text("The otter")


def test_invalid_tokenizers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="vocabulary of 100: it needs at least 260"):
        SubwordTokenizer.build(TEXTS, 100)
    with pytest.raises(UserError, match=r"no such file; give --data\.tokenizer_dir a folder"):
        SubwordTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3')
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer"):
        SubwordTokenizer.load(tmp_path)
    text = SubwordTokenizer.build(TEXTS, SMALLEST)
    without = text.backend.to_str().replace("<pad>", "<padding>")
    (tmp_path / "tokenizer.json").write_text(without)
    with pytest.raises(UserError, match="the tokenizer has no <pad>"):
        SubwordTokenizer.load(tmp_path)


def test_tokens_that_end_a_sentence(text):
    ends = text.end_ids()
    assert {text(mark)[0][-1] for mark in (".", "!", "?")} <= set(ends)
    assert all(text.decode([i]).endswith((".", "!", "?")) for i in ends) and not {text.start, text.stop} & set(ends)
    assert text.end_ids([";"]) == [i for i in range(len(text)) if text.decode([i]).endswith(";")]


def test_separators_are_symbols_of_their_own(tmp_path):
    text = GraphTokenizer.build(TEXTS, SMALLEST + 42)
    assert (text.paragraph, text.sentence) == (4, 5) and len(text) <= SMALLEST + 42
    assert 5 in text.end_ids() and 4 not in text.end_ids()
    ids, _ = text("The <p> otter <q>")
    assert not {4, 5} & set(ids) and text.decode([5, *ids, 4]) == "The <p> otter <q>"
    text.save(tmp_path)
    assert SubwordTokenizer.load(tmp_path).sentence == 5
    without = SubwordTokenizer.build(TEXTS, SMALLEST)
    assert without.paragraph is None and without.sentence is None
    with pytest.raises(ValueError, match="vocabulary of 261: it needs at least 262"):
        GraphTokenizer.build(TEXTS, 261)


def test_tokenizers_of_berts_kind_have_other_names_for_the_same(tmp_path):
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "an", "otter", "##s"])}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    text = GraphTokenizer.of_checkpoint(str(tmp_path))
    assert (text.start, text.pad, text.stop, text.paragraph, text.sentence) == (2, 0, 3, 7, 8)
    ids, offsets = text("an otters")
    assert text.decode([2, *ids, 8, 3]) == "an otters" and offsets == [(0, 2), (3, 8), (8, 9)]
    assert SubwordTokenizer.of_checkpoint(str(tmp_path)).sentence is None
