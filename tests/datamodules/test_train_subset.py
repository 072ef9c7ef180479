"""`max_train` and `max_eval` limit the documents of a DataModule."""


from datamodules.corpora.texts import Records
from datamodules.pointer_generator import PointerGeneratorData


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
