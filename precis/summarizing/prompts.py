"""Prompts, text files with `{document}` and perhaps `{n}` and `{query}`; and the texts that models answer with."""

import re
from collections.abc import Mapping
from pathlib import Path

from datamodules.corpora.readers import read_rows
from datamodules.documents import BadRecord, UserError
from datamodules.text.language import language_of
from precis.files.texts import read_text

FOLDER = Path(__file__).with_name("prompts")
_THOUGHT = re.compile(r"^\s*<think>.*?(</think>|\Z)", re.DOTALL)


def sentences_of(text: str, language: str = "en") -> list[str]:
    """Return the sentences of a model's output; a line feed, written `<n>` by PEGASUS, also ends a sentence."""
    return [sentence for line in re.split(r"<n>|\n", text) for sentence in language_of(language).split_sentences(line)]


def answer_text(text: str) -> str:
    """Return an answer without the reasoning before it (<think>...</think>); empty if only reasoning was generated."""
    return _THOUGHT.sub("", text).strip()


def shipped_prompts() -> list[str]:
    """Return the names of the prompts that come with the suite."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read_prompt(name: str) -> str:
    """Return the text of a shipped prompt by its name, or of a file; a `UserError` if there is neither."""
    path = FOLDER / f"{name}.txt" if name in shipped_prompts() else Path(name)
    if not path.is_file():
        raise UserError(f"--prompt {name}: no such file; give one, or one of {', '.join(shipped_prompts())}")
    return read_text(path)


def check_fields(name: str, prompt: str, fields: Mapping[str, bool]) -> None:
    """Raise a `UserError` if a prompt has a field, such as {query}, without a value, or lacks one that has a value."""
    for field, has_value in fields.items():
        if has_value and f"{{{field}}}" not in prompt:
            raise UserError(f"--prompt {name}: it has no {{{field}}}, where the {field} would stand; add it")
        if not has_value and f"{{{field}}}" in prompt:
            raise UserError(f"--prompt {name}: it asks for {{{field}}}; give it on the command line (see --help)")


def fill(prompt: str, values: Mapping[str, str]) -> str:
    """Return a prompt with each {name} in `values` replaced; other braces, in prompt or values, stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), prompt)


def read_queries(path: Path, field: str) -> dict[str, str]:
    """Return the text in `field` of each record of a file, by id; a `UserError` if one is missing or an id repeats."""
    queries: dict[str, str] = {}
    for number, row in read_rows(path, ["id", field]):  # number: of the line
        if isinstance(row, BadRecord):  # such as broken JSON
            raise UserError(f"{row.where}: {row.problem}; correct the file")
        name, query = row.get("id"), row.get(field)
        if name is None or not isinstance(query, str) or not query.strip():
            raise UserError(f"{path}:{number}: no id, or no text in field {field!r}; add it, or name --query_field")
        if str(name) in queries:
            raise UserError(f"{path}:{number}: id {str(name)!r} occurs twice; give each record an id of its own")
        queries[str(name)] = query
    return queries
