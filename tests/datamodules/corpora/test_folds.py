"""Cross-validation: every training document is held out once and trained on otherwise."""


from datamodules.corpora import Folds, Texts
from datamodules.documents import BadRecord, Record


class Numbers(Texts):
    """Records 0 to 10 as training documents; record 4 is damaged. `val` fails when it is read."""

    def splits(self):
        return ["train", "val"]

    def records(self, split):
        assert split == "train"
        for number in range(11):
            if number == 4:
                yield BadRecord("line 5", "broken", "fix it")
            else:
                yield Record(str(number), [[f"Text {number}."]], [], where=f"line {number + 1}")

    def fingerprint(self, split):
        assert split == "train"
        return "numbers"


def ids(corpus, split):
    return [getattr(record, "id", "damaged") for record in corpus.records(split)]


def test_each_record_is_held_out_once():
    corpora = [Folds(Numbers([]), fold, folds=3) for fold in range(3)]
    assert [ids(corpus, "val") for corpus in corpora] == [
        ["0", "3", "6", "9"], ["1", "damaged", "7", "10"], ["2", "5", "8"],
    ]  # fmt: skip
    everything = sorted(ids(Numbers([]), "train"))
    for corpus in corpora:
        assert corpus.splits() == ["train", "val"]
        assert sorted(ids(corpus, "train") + ids(corpus, "val")) == everything


def test_fingerprints_tell_folds_apart():
    made = [Folds(Numbers([]), 0), Folds(Numbers([]), 1), Folds(Numbers([]), 0, folds=4)]
    prints = {corpus.fingerprint(split) for corpus in made for split in ("train", "val")}
    assert len(prints) == 6
