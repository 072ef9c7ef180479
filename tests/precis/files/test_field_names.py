import json

import pytest

from precis.files.field_names import first_row, guess_fields

PRESUMM = [{"src": [["boats", "sank", "."], ["it", "rained", "."]], "tgt": [["a", "storm", "."]]}]
TOKENS = {"document": "src", "document_list": "tokens", "summary": "tgt", "summary_list": "tokens"}
ARXIV = {"article_text": ["It rained.", "We stayed."], "abstract_text": ["<S> it rained </S>", "<S> we stayed </S>"]}


@pytest.mark.parametrize(
    ("row", "arguments"),
    [
        (PRESUMM[0], TOKENS),
        (ARXIV, {"document": "article_text", "document_list": "sentences", "summary": "abstract_text",
                 "summary_list": "sentences"}),
        ({"id": 3, "document": "a b", "summary": "a"}, {}),
        ({"article": "a b", "highlights": "a", "url": "u"},
         {"document": "article", "summary": "highlights", "id": "url"}),
        ({"text": ["One two. Three four five.", "Six."] * 9, "summary": None}, {"document": "text"}),
        ({"sentences": ["The cat sat.", "It slept."], "Title": "a"},
         {"document": "sentences", "document_list": "sentences", "summary": "Title"}),
        ({"source": "a", "other": 1}, {"document": "source", "summary": None}),
    ],
)  # fmt: skip
def test_fields_are_guessed_from_names_and_values(row, arguments):
    assert guess_fields(row, "here").arguments() == arguments


def test_the_guess_reads_the_file(tmp_path, precis):
    path = tmp_path / "shard.json"
    path.write_text(json.dumps(PRESUMM), encoding="utf-8")
    assert first_row(path) == PRESUMM[0]
    done = precis("corpus", path, "--json", "true").succeeded()
    (split,) = json.loads(done.out)
    assert split["documents"] == 1 and split["document_sentences"]["mean"] == 2
    assert "src: 2 sentences as lists of tokens, the document" in done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("to train on it: ")]
    options = line.removeprefix("to train on it: ").split()
    assert dict(zip(options[::2], options[1::2])) == {
        "--data.corpus": "Files", "--data.corpus.train": str(path),
        **{f"--data.corpus.{name}": value for name, value in TOKENS.items()},
    }  # fmt: skip


def test_corpus_needs_one_corpus(tmp_path, precis):
    for arguments in ((), (tmp_path / "a.json", "--corpus", "Docstrings")):
        done = precis("corpus", *arguments)
        assert done.status == 1 and done.err.count("\n") == 1 and "--corpus" in done.err
