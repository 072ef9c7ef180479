"""What limits of each DataModule cut off, against plain loops over the text; languages and limits of corpora."""

import copy
import logging
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from conftest import write_lines
from pytorch_lightning.utilities import rank_zero_only

from datamodules.bertsum import ExtractiveData
from datamodules.bertsum_abs import BertSumAbsData
from datamodules.communicating_agents import CommunicatingAgentsData
from datamodules.corpora import Files
from datamodules.corpora.corpus import as_document
from datamodules.documents import Document, UserError
from datamodules.graphs import ParagraphRule
from datamodules.graphsum import GraphSumData
from datamodules.matchsum import MatchSumData
from datamodules.pointer_generator import PointerGeneratorData
from datamodules.pretrained_summarizer import PegasusData
from datamodules.rstformer import RSTformerData
from datamodules.truncation import TruncationRow, from_csv
from precis.runs.run_folder import TruncationTable

SENTENCES = ["The otter guards the mill.", "It rains.", "The heron paints the old harbour before noon.", "Nobody came."]
RAGGED = Document("r", [SENTENCES[:2], SENTENCES[2:3], SENTENCES[3:], SENTENCES[:3]], [SENTENCES[2:]])


def written(folder: Path, rows: list[dict]) -> Files:
    """A corpus with the same documents in every split."""
    path = str(write_lines(folder / "rows.jsonl", rows))
    return Files(train=path, val=path, test=path)


@pytest.fixture
def corpus(tmp_path) -> Files:
    rows = []
    for n in range(8):
        parts = ["\n".join(SENTENCES[: 1 + n % 4]), " ".join(SENTENCES[: 1 + n // 3])]
        rows.append({"id": f"d{n}", "document": parts, "summary": " ".join(SENTENCES[: 1 + n % 3])})
    return written(tmp_path, rows)


SUBWORDS = {"vocab_size": 300, "max_target": 12}
SENTENCE_WISE = {"vocab_size": 300, "checkpoint": None, "max_source": 40}
# with the numbers of symbols around source, sentences and target
KINDS = {
    "pointer-generator": (PointerGeneratorData, {"vocab_size": 60, "max_source": 14, "max_target": 9}, 0, 0, 1),
    "agents": (CommunicatingAgentsData, {"vocab_size": 60, "max_source": 14, "max_target": 9}, 0, 0, 1),
    "pegasus": (PegasusData, SUBWORDS | {"max_source": 30}, 2, 0, 0),
    "rstformer": (RSTformerData, SUBWORDS | {"max_source": 30, "ablation": "no_discourse"}, 2, 0, 0),
    "bertsum": (ExtractiveData, SENTENCE_WISE, 0, 2, None),
    "bertsum_abs": (BertSumAbsData, SENTENCE_WISE | {"max_target": 12}, 0, 2, 0),
}


def made(kind: str, corpus: Files, folder: Path, **changes):
    data_class, arguments, *_ = KINDS[kind]
    data = data_class(corpus, cache_dir=folder, **arguments | changes)
    data.prepare_data()
    return data


def brute_force(kind: str, data, document: Document) -> dict[str, list[int]]:
    """The counts of a document, by looking at every token."""
    *_, around, between, after = KINDS[kind]
    encode = getattr(data.tokenizer, "tokenize", lambda text: data.tokenizer(text)[0])
    texts = document.sentences
    if around:  # the text is encoded as a whole
        texts = [document.text[start:end] for start, end in pairwise([0, *document.sentence_ends])]
    owners = [n for n, text in enumerate(texts) for _ in range(len(encode(text)) + between)]
    read = owners[: data.max_source - around]
    sentences = [n for n in range(len(texts)) if read.count(n) == owners.count(n)]
    if between:  # whole sentences alone
        read = [owner for owner in read if owner in sentences]
    if not read:
        read, sentences = [owner for owner in owners if owner == 0], [0]
    firsts = [sum(map(len, document.parts[:number])) for number in range(len(document.parts))]
    paragraphs = [a for a, part in zip(firsts, document.parts) if {*range(a, a + len(part))} <= {*sentences}]
    counts = {
        "source_tokens": [len(read), len(owners)],
        "source_sentences": [len(sentences), len(document.sentences)],
        "source_paragraphs": [len(paragraphs), len(document.parts)],
    }
    if after is None:
        return counts
    target = len(encode(" ".join(document.references[0]))) + after
    return counts | {"target_tokens": [min(target, data.max_target - 1 + after), target]}


@pytest.mark.parametrize("kind", KINDS)
def test_counts_equal_those_of_a_loop_over_the_tokens(kind, corpus, tmp_path):
    data = made(kind, corpus, tmp_path / "cache")
    documents = [as_document(row) for row in data.documents("train")] + [RAGGED]
    counts = [data.encode(document)["truncation"] for document in documents]
    assert counts == [brute_force(kind, data, document) for document in documents]
    assert set(counts[0]) == set(data.truncation_limits())
    sums = {row.counted.replace(" ", "_"): row for row in data.truncation["train"]}
    for name, row in sums.items():
        pairs = [count[name] for count in counts[:-1]]
        assert row.total == sum(total for _, total in pairs) and row.documents == 8
        assert row.left_out == sum(total - read for read, total in pairs) > 0
        assert row.documents_cut == sum(total > read for read, total in pairs)
        named = [document.id for document, (read, total) in zip(documents, pairs) if total > read]
        assert row.examples.split() == named[:3]


def test_counts_of_paragraphs_that_are_nodes(corpus, tmp_path):
    rule = ParagraphRule(max_paragraphs=2)
    data = GraphSumData(corpus, 300, paragraphs=rule, max_tokens=8, max_target=6, cache_dir=tmp_path / "cache")
    data.prepare_data()
    document = Document("a", [SENTENCES[1:2], [], SENTENCES[2:], SENTENCES[:1]], [SENTENCES[:2]])
    one, two = len(data.tokenizer(" It rains.")[0]), len(data.tokenizer(" " + " ".join(SENTENCES[2:]))[0])
    # a separator between the two
    target = sum(len(data.tokenizer(f" {sentence}")[0]) for sentence in SENTENCES[:2]) + 1
    assert one <= 7 < two
    expected = {"source_parts": [3, 4], "source_paragraphs": [2, 3], "source_sentences": [1, 4]}
    expected |= {"tokens_of_kept_paragraphs": [one + 7, one + two], "target_tokens": [5, target]}
    assert data.encode(document)["truncation"] == expected
    roomy = GraphSumData(corpus, 300, max_tokens=200, max_target=99, cache_dir=tmp_path / "cache")
    roomy.prepare_data()
    assert all(row.left_out == 0 for rows in roomy.truncation.values() for row in rows)
    # models that read everything say so
    scores = Mock(fingerprint="first", sentence_scores=lambda documents: [[0.0] * len(d.sentences) for d in documents])
    data = MatchSumData(corpus, scores, 300, None, cache_dir=tmp_path)
    data.prepare_data()
    assert {(row.left_out, row.limit) for row in data.truncation["train"]} == {(0, "no limit")}
    assert all(row.total > 0 for row in data.truncation["train"])


def lines(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if "cut off" in record.getMessage()]


def test_one_line_for_each_split_from_cached_counts(corpus, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    data = made("pegasus", corpus, tmp_path)
    data.setup("fit")
    data.train_dataloader()
    assert [line.split(",")[0] for line in lines(caplog)] == ["train", "val", "test"]
    row, *_ = data.truncation["train"]
    assert f" in {row.documents_cut} documents (data.max_source 30); " in lines(caplog)[0]
    caplog.clear()
    monkeypatch.setattr(PegasusData, "encode", None)  # the counts are in the cache: nothing is tokenised again
    assert made("pegasus", corpus, tmp_path).truncation == data.truncation and len(lines(caplog)) == 3
    caplog.clear()
    monkeypatch.undo()
    made("pegasus", corpus, tmp_path, max_source=300, max_target=300)  # nothing is cut
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    made("pegasus", corpus, tmp_path)
    assert lines(caplog) == []


def read_rows(folder: Path) -> dict[tuple[str, str], TruncationRow]:
    return {(row.split, row.counted): row for row in from_csv((folder / "truncation.csv").read_text(encoding="utf-8"))}


@pytest.mark.integration
def test_a_run_folder_has_a_table_and_a_test_adds_its_split(run_folder, precis):
    before = read_rows(run_folder)
    assert {split for split, _ in before} == {"train", "val"}
    row = before["train", "target tokens"]
    assert (row.limit, row.documents) == ("data.max_target 12", 26)
    assert precis("test", "--run", run_folder).status == 0
    after = read_rows(run_folder)
    assert {split for split, _ in after} == {"train", "val", "test"} and before.items() <= after.items()


def test_commands_that_write_the_table_at_once_keep_the_rows_of_all(corpus, tmp_path):
    data = made("pegasus", corpus, tmp_path)

    def write(split: str) -> None:
        part = copy.copy(data)
        part.truncation = {split: data.truncation[split]}
        TruncationTable(tmp_path).setup(SimpleNamespace(is_global_zero=True, datamodule=part), None, "fit")

    for _ in range(10):
        (tmp_path / "truncation.csv").unlink(missing_ok=True)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, ("train", "val", "test")))
        assert {split for split, _ in read_rows(tmp_path)} == {"train", "val", "test"}


RUSSIAN = ("Буря пришла ночью. Лодки утонули в порту.", "Лодки утонули.")
CHINESE = ("昨夜风暴来了.船沉了。港口关闭。", "船沉了。")


def twice(folder: Path, document: str, summary: str) -> Files:
    return written(folder, [{"id": str(i), "document": document, "summary": summary} for i in range(2)])


@pytest.mark.parametrize(("code", "script", "texts", "sentences", "word"), [
    ("ru", "Cyrillic", RUSSIAN, 2, "буря"), ("zh", "Han", CHINESE, 3, "船"),
])  # fmt: skip
def test_a_corpus_that_is_hardly_latin_is_not_english(tmp_path, code, script, texts, sentences, word):
    corpus = twice(tmp_path, *texts)
    remedy = f"give --data.language {code}, or the code of their language .xx for any, whatever the script.$"
    with pytest.raises(UserError, match=f"100% of the letters in the train documents are {script}.*; {remedy}"):
        PointerGeneratorData(corpus, 30, cache_dir=tmp_path).prepare_data()
    for chosen in ("xx", "de", code):
        data = PointerGeneratorData(corpus, 30, cache_dir=tmp_path, language=chosen)
        data.prepare_data()
    data.setup("fit")
    (parts,) = data.documents("train")[0]["parts"]
    assert len(parts) == sentences and data.tokenizer.language.code == code and word in data.tokenizer.words


def test_labels_without_words_are_a_warning(tmp_path):
    corpus = twice(tmp_path, *RUSSIAN)
    with pytest.warns(UserWarning, match="train: no sentence of the first 2 documents .* set --data.language"):
        ExtractiveData(corpus, 300, None, cache_dir=tmp_path).prepare_splits(["train"])
    data = ExtractiveData(corpus, 300, None, cache_dir=tmp_path, language="ru")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        data.prepare_splits(["train"])
    assert data.features("train")[0]["labels"] == [0, 1]


def ids(tmp_path, split="train", seed=1, **limits):
    names = [f"{source}-{number:03d}" for source in ("a", "b") for number in range(200)]
    corpus = written(tmp_path, [{"id": name, "document": f"Text {name}.", "summary": "Text."} for name in names])
    data = PointerGeneratorData(corpus, cache_dir=tmp_path, seed=seed, **limits)
    return data.documents(split)["id"][:], data.digest(split)


def test_the_first_documents_are_kept_or_a_random_subset_that_is_the_same_for_all_seeds(tmp_path):
    everything, _ = ids(tmp_path)
    first = [ids(tmp_path, split, max_train=100, max_eval=100)[0] for split in ("train", "val", "test")]
    assert first == [everything[:100]] * 3 and ids(tmp_path, max_train=1000)[0] == everything
    chosen, digest = ids(tmp_path, max_train=100, train_subset="random")
    assert len(set(chosen)) == 100 and chosen == sorted(chosen)
    # hypergeometric: mean 50, standard deviation 4.3
    assert 30 <= sum(name.startswith("a") for name in chosen) <= 70
    assert ids(tmp_path, max_train=100, train_subset="random", seed=2) == (chosen, digest)
    assert digest != ids(tmp_path, max_train=100)[1], "features of other documents are not read from the cache"
