"""YAML of somebody else: refused in a line before it is unfolded or built."""

import pytest
import yaml

from datamodules.documents import UserError
from precis.config.argument_values import _load
from precis.files.yaml_files import read_yaml


def merged(levels: int, copies: int) -> str:
    """Mappings, each of which merges the one before several times."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(levels):
        lines += [f"a{level + 1}: &a{level + 1}", f"  <<: [{', '.join([f'*a{level}'] * copies)}]"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text, problem",
    [
        (merged(8, 9), "unfold to more than 100,000 values"),
        (merged(8, 9).replace("<<:", "!!merge x:"), "unfold to more than 100,000 values"),
        ("a: &a [*a]", "unfold to more than 100,000 values"),
        ("a: !!int ''", "cannot be read"),
        ("[" * 5000, "cannot be read"),
    ],
)
def test_what_would_fill_the_memory_or_does_not_fit_its_tag_is_refused(text, problem, tmp_path):
    (path := tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=problem) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    if "&" in text or "!" in text:  # as jsonargparse reads files that options name
        with pytest.raises(yaml.YAMLError, match=problem):
            _load(text)


def test_merge_keys_and_aliases_are_read(tmp_path):
    (path := tmp_path / "config.yaml").write_text(f"{merged(2, 3)}\nb: {{<<: *a2, l: [*a0]}}", encoding="utf-8")
    assert read_yaml(path)["b"] == {"k": 1, "l": [{"k": 1}]}
    assert _load(path.read_text(encoding="utf-8"))["b"] == {"k": 1, "l": [{"k": 1}]}
