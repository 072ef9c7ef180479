"""The language of a corpus and limits of its documents, which hold for every DataModule."""

import warnings

import pytest
from conftest import write_lines

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Files
from datamodules.corpora.texts import Records
from datamodules.documents import UserError
from datamodules.pointer_generator import PointerGeneratorData

ROWS = {
    "ru": ("Буря пришла ночью. Лодки утонули в порту.", "Лодки утонули."),
    "zh": ("昨夜风暴来了.船沉了。港口关闭。", "船沉了。"),
}


def written(folder, code: str) -> Files:
    document, summary = ROWS[code]
    rows = [{"id": str(i), "document": document, "summary": summary} for i in range(2)]
    path = str(write_lines(folder / f"{code}.jsonl", rows))
    return Files(train=path, val=path, test=path)


@pytest.mark.parametrize(("code", "script"), [("ru", "Cyrillic"), ("zh", "Han")])
def test_a_corpus_that_is_hardly_latin_is_not_english(tmp_path, code, script):
    data = PointerGeneratorData(written(tmp_path, code), 30, cache_dir=tmp_path)
    remedy = f"give --data.language {code}, or the code of their language .xx for any, whatever the script.$"
    with pytest.raises(UserError, match=f"100% of the letters in the train documents are {script}.*; {remedy}"):
        data.prepare_data()
    for chosen in ("xx", "de"):
        PointerGeneratorData(written(tmp_path, code), 30, cache_dir=tmp_path, language=chosen).prepare_data()
    data = PointerGeneratorData(written(tmp_path, code), 30, cache_dir=tmp_path, language=code)
    data.prepare_data()
    data.setup("fit")
    (parts,) = data.documents("train")[0]["parts"]
    assert len(parts) == {"ru": 2, "zh": 3}[code]
    assert data.tokenizer.language.code == code
    assert {"ru": "буря", "zh": "船"}[code] in data.tokenizer.words


def test_labels_without_words_are_a_warning(tmp_path):
    corpus = written(tmp_path, "ru")
    with pytest.warns(UserWarning, match="train: no sentence of the first 2 documents .* set --data.language"):
        ExtractiveData(corpus, 300, None, cache_dir=tmp_path).prepare_splits(["train"])
    data = ExtractiveData(corpus, 300, None, cache_dir=tmp_path, language="ru")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        data.prepare_splits(["train"])
    assert data.features("train")[0]["labels"] == [0, 1]


class SortedCorpus(Records):
    """Two hundred documents of one source before two hundred of another, in every split."""

    def __init__(self):
        names = [f"{source}-{number:03d}" for source in ("a", "b") for number in range(200)]
        super().__init__({"id": name, "document": f"Text {name}.", "summary": f"Text {name}."} for name in names)

    def splits(self):
        return ["train", "val", "test"]


def ids(tmp_path, split="train", seed=1, **limits):
    data = PointerGeneratorData(SortedCorpus(), cache_dir=tmp_path, seed=seed, **limits)
    return data.documents(split)["id"][:], data.digest(split)


def test_the_first_documents_are_kept_by_default(tmp_path):
    everything, _ = ids(tmp_path)
    for split in ("train", "val", "test"):
        assert ids(tmp_path, split, max_train=100, max_eval=100)[0] == everything[:100]
    assert ids(tmp_path, max_train=1000)[0] == everything


def test_a_random_subset_has_documents_of_all_sources_and_is_the_same_for_all_seeds(tmp_path):
    chosen, digest = ids(tmp_path, max_train=100, train_subset="random")
    assert len(set(chosen)) == 100 and chosen == sorted(chosen)
    # hypergeometric: mean 50, standard deviation 4.3
    assert 30 <= sum(name.startswith("a") for name in chosen) <= 70
    assert ids(tmp_path, max_train=100, train_subset="random", seed=2) == (chosen, digest)
    assert digest != ids(tmp_path, max_train=100)[1], "features of other documents are not read from the cache"
