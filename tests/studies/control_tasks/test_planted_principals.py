"""The control corpus of gap sentences: which sentence the others predict, and that selection by ROUGE finds it."""


from datamodules.corpora.corpus import Corpus
from datamodules.documents import Record
from datamodules.text.gap_selection import select
from experiments.studies.controls.tasks import PlantedPrincipals
from experiments.studies.controls.tasks.planted_principals import SLOTS

REAL = [
    "Otters swim upstream.", "Herons watch fish.", "Badgers dig tunnels.", "Stoats hunt mice.", "Falcons dive fast.",
    "Magpies sing aloud.", "Beavers build dams.", "Weasels hide eggs.", "Wrens nest below.", "Lynxes sleep outside.",
    "Foxes run away.", "Owls see everything.",
]  # fmt: skip
SIZES = (80, 5, 5)


class ShortSentences(Corpus):
    """Twelve short sentences, and others that are too long or have numbers."""

    def splits(self):
        return ["train"]

    def records(self, split):
        yield Record("all", [[*REAL, "Six otters swim upstream all day long.", "Otters eat 3 fish."]], [["x"]], "here")

    def fingerprint(self, split):
        return "short sentences"


def documents(split="train", **options) -> list[tuple[list[str], str]]:
    corpus = PlantedPrincipals(ShortSentences(), sizes=SIZES, **options)
    return [(record.parts[0], record.references[0][0]) for record in corpus.records(split)]


def test_each_sentence_ends_with_one_word_of_the_summary():
    real = {text.removesuffix(".") for text in REAL}
    orders = set()
    for sentences, summary in documents():
        words = summary.removesuffix(".").split()
        assert [word in slot for word, slot in zip(words, SLOTS, strict=True)] == [True] * 4
        ends = [sentence.removesuffix(".").rsplit(" ", 1) for sentence in sentences]
        assert sorted(end for _, end in ends) == sorted(words) and {text for text, _ in ends} <= real
        assert len({text for text, _ in ends}) == 4
        orders.add(tuple(words.index(end) for _, end in ends))
    assert len(orders) > 12


def test_the_principal_sentence_is_there_for_pre_training_and_never_first():
    places = set()
    for sentences, summary in documents(principal=True):
        assert len(sentences) == 5 and sentences.count(summary) == 1
        places.add(sentences.index(summary))
    assert places == {1, 2, 3, 4}
    assert all(summary not in sentences for sentences, summary in documents())


def test_rouge_selects_the_principal_sentence_and_chance_one_of_five():
    chosen = {"ind-orig": 0, "random": 0, "lead": 0}
    for sentences, summary in documents(principal=True):
        for selection in chosen:
            chosen[selection] += sentences[select(sentences, 1, selection)[0]] == summary
    assert chosen["ind-orig"] > 0.9 * 80 and chosen["random"] < 0.5 * 80 and chosen["lead"] == 0
