import pytest

from datamodules.text import rouge_words
from datamodules.text.rouge_words import read_exceptions, vocabulary


def test_words_with_one_stem_share_a_number_and_short_words_are_kept():
    words = vocabulary()
    run, runs, running, gas, ga = words.encode("run runs running gas ga")
    assert run == runs == running
    assert gas != ga
    assert words.encode("RUNNING") == [run]
    assert words.encode(" .,- ") == []


def write_lists(folder, **lists):
    for part, lines in lists.items():
        (folder / f"{part}.exc").write_text(lines, encoding="utf-8")


def test_exceptions_go_before_the_stemmer_and_adjectives_before_adverbs(tmp_path):
    write_lists(tmp_path, adj="best good\n", adv="best well\n", verb="said say\nsewn sew\n\n", noun="men man boy")
    assert read_exceptions(str(tmp_path)) == {"best": "good", "said": "say", "sewn": "sew", "men": "man"}
    words = vocabulary("perl", wordnet=str(tmp_path))
    assert words.encode("said best") == words.encode("say good")
    assert words.encode("generation") == words.encode("generated")
    assert words.description == "stem:perl+wordnet|tok:rouge"


def test_a_missing_list_is_an_error_where_it_was_asked_for_and_a_warning_elsewhere(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"has no WordNet exception list"):
        read_exceptions(str(tmp_path))
    monkeypatch.setattr(rouge_words, "WORDNET_FOLDERS", (str(tmp_path),))
    with pytest.warns(UserWarning, match="wordnet-base"):
        assert read_exceptions() == {}
    with pytest.raises(ValueError, match="belongs to the stemmer 'perl'"):
        vocabulary(True, wordnet=str(tmp_path))


def test_a_full_vocabulary_starts_again(monkeypatch):
    monkeypatch.setattr(rouge_words, "MAX_WORDS", 3)
    words = rouge_words.Vocabulary(rouge_words._latin, None, "")
    assert words.encode("a b c d e") == words.encode("a b c d e")
    words.limit_size()
    assert len(words) == 0
    one, other, again = words.encode("a e a")
    assert one == again != other
