"""Files of somebody else: their fields are guessed, and hostile YAML is refused before it is unfolded or built."""

import json
import shlex

import pytest
import yaml
from conftest import write

from datamodules.documents import UserError
from precis.config.load_classes import _load
from precis.files.data_files import read_yaml
from precis.files.field_names import guess_fields

PRESUMM = {"src": [["boats", "sank", "."], ["it", "rained", "."]], "tgt": [["a", "storm", "."]]}
TOKENS = {"document": "src", "document_list": "tokens", "summary": "tgt", "summary_list": "tokens"}
ARXIV = {"article_text": ["It rained.", "We stayed."], "abstract_text": ["<S> it rained </S>", "<S> we stayed </S>"]}


@pytest.mark.parametrize(("row", "arguments"), [
    ({"src": [["今天", "下雨", "。"], ["学校", "停课", "。"]], "tgt": [["下雨", "停课", "。"]]}, TOKENS),
    (ARXIV, {"document": "article_text", "document_list": "sentences", "summary": "abstract_text",
             "summary_list": "sentences"}),
    ({"id": 3, "document": "a b", "summary": "a"}, {}),
    ({"article": "a b", "highlights": "a", "url": "u"}, {"document": "article", "summary": "highlights", "id": "url"}),
    ({"text": ["One two. Three four five.", "Six."] * 9, "summary": None}, {"document": "text"}),
    ({"sentences": ["The cat sat.", "It slept."], "Title": "a"},
     {"document": "sentences", "document_list": "sentences", "summary": "Title"}),
    ({"documents": ["The cat sat.", "It slept."], "summary": "a"}, {"document": "documents"}),
    ({"document": ["今天下雨。学校停课。", "明天转晴。"], "summary": [["下雨。", "停课。"], ["全市降雨"]]}, {}),
    ({"document": [["今天全市下雨", "学校停课"], ["明天转晴了"]], "summary": ["ฝนตกหนัก"]}, {}),
    ({"document": ["ฝนตกหนัก โรงเรียนปิด", "พรุ่งนี้ฟ้าใส"], "summary": None}, {}),
    ({"document": ["बारिश हुई। स्कूल बंद है।", "कल धूप होगी।"], "summary": "बारिश हुई।"}, {}),
])  # fmt: skip
def test_fields_are_guessed_from_names_and_values(row, arguments):
    assert guess_fields(row, "here").arguments() == arguments


def test_the_guess_reads_the_file(tmp_path, precis):
    path = write(tmp_path / "a shard.json", json.dumps(["broken", PRESUMM]))
    done = precis("corpus", path, "--json", "true", "--on_bad_record", "skip").succeeded()
    (split,) = json.loads(done.out)
    assert split["documents"] == 1 and split["document_sentences"]["mean"] == 2
    assert "src: 2 sentences as lists of tokens, the document" in done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("to train on it: ")]
    options = shlex.split(line.removeprefix("to train on it: "))
    fields = {f"--data.corpus.{name}": value for name, value in {"train": str(path), **TOKENS}.items()}
    assert dict(zip(options[::2], options[1::2])) == {"--data.corpus": "Files", **fields}


def merged(levels: int, copies: int) -> str:
    """Mappings, each of which merges the one before several times."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(levels):
        lines += [f"a{level + 1}: &a{level + 1}", f"  <<: [{', '.join([f'*a{level}'] * copies)}]"]
    return "\n".join(lines)


@pytest.mark.parametrize("text, problem", [
    (merged(8, 9), "unfold to more than 100,000 values"),
    (merged(8, 9).replace("<<:", "!!merge x:"), "unfold to more than 100,000 values"),
    ("a: &a [*a]", "unfold to more than 100,000 values"),
    ("a: !!int ''", "cannot be read"),
    ("[" * 5000, "cannot be read"),
])  # fmt: skip
def test_merge_keys_are_read_but_what_would_fill_the_memory_or_does_not_fit_its_tag_is_refused(text, problem, tmp_path):
    sound = f"{merged(2, 3)}\nb: {{<<: *a2, l: [*a0]}}"
    for content in (read_yaml(write(tmp_path / "config.yaml", sound)), _load(sound)):
        assert content["b"] == {"k": 1, "l": [{"k": 1}]}
    path = write(tmp_path / "config.yaml", text)
    with pytest.raises(UserError, match=problem) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    if "&" in text or "!" in text:  # as jsonargparse reads files that options name
        with pytest.raises(yaml.YAMLError, match=problem):
            _load(text)
