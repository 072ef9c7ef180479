import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datamodules.documents import UserError
from datamodules.text.masking_tokenizer import MaskingTokenizer
from datamodules.text.subword_tokenizer import SMALLEST

TEXTS = ["The otter guards the mill.", "Every otter guards a mill, and naïve herons watch."] * 3


@pytest.fixture(scope="module")
def text():
    return MaskingTokenizer.build(TEXTS, SMALLEST + 41)


def test_the_mask_is_the_last_token_and_no_text(text):
    assert text.mask == len(text) - 1 <= SMALLEST + 40
    assert text.opening == [text.start] and len({text.start, text.pad, text.stop, text.mask}) == 4
    ids, _ = text("the <mask> mill")
    assert text.mask not in ids and text.decode(ids) == "the <mask> mill"
    assert text.decode([text.mask, *ids, text.stop, text.mask]) == "the <mask> mill"


def test_saved_loaded_and_from_a_state(text, tmp_path):
    text.save(tmp_path)
    for other in (MaskingTokenizer.load(tmp_path), MaskingTokenizer.from_state(text.state())):
        assert other.state() == text.state() and other.mask == text.mask


def test_a_tokenizer_of_pegasus_kind_starts_with_padding(tmp_path):
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<mask_1>", 0.0), ("<mask_2>", 0.0), ("<n>", -1.0), ("<unk>", 0.0)]
    pieces += [("▁otter", -2.0), ("▁the", -2.0), ("▁", -3.0), ("▁mill", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=5))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<mask_1>", "<mask_2>"])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    text = MaskingTokenizer.of_checkpoint(str(tmp_path))
    assert (text.pad, text.stop, text.mask, text.start, text.opening) == (0, 1, 2, 0, [])
    assert text("the otter")[0] == [7, 6]
    assert text.decode([7, 6, 4, 7, 9, 1]) == "the otter the mill"


def test_what_does_not_fit_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match=f"a vocabulary of {SMALLEST}: it needs at least {SMALLEST + 1}"):
        MaskingTokenizer.build(TEXTS, SMALLEST)
    (tmp_path / "tokenizer.json").write_text(text.backend.to_str().replace("</s>", "<end>"))
    with pytest.raises(UserError, match="the tokenizer has no </s>"):
        MaskingTokenizer.load(tmp_path)
