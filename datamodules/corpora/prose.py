"""Extraction of prose from docstrings: without code, markup, tables, names and types."""

import re
import textwrap
from collections.abc import Iterator

# Sections of entries (name and description), and sections without prose; any other section ("Notes") is plain text.
_ENTRIES = (
    r"(?:(?:other|keyword|class)\s)?(?:parameters?|params?|args|arguments?|attributes?|inputs?|outputs?|returns?|yields?"
    "|raises|warns|exceptions?|options|fields|members|properties)"
)
_OTHERS = (
    "methods|functions|classes|shapes?|see also|references?|examples?(?: usage)?|usage|code|todo|signature|receives"
)
_SECTION = re.compile(rf"(?:(?P<entries>{_ENTRIES})|{_OTHERS})(?:\s\(.*\))?\s*:{{0,2}}$", re.IGNORECASE)
_SECTION_WITHIN = re.compile(rf"\n(?={_ENTRIES}:\n)", re.IGNORECASE)
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(?:\s*->.*)?$", re.DOTALL)
_UNDERLINE = re.compile(r"([-=~^#*+])\1{2,}\s*$")
_NAMED = re.compile(r"[\w*`'\", .]{1,60}(?:\s?\(.*?\))?\s?:(?:\s+|$)")  # `name (type): `
_ADMONITION = re.compile(r"\.\. (?:note|warning|tip|caution|important|attention|deprecated|version\w+)::.*")
_FIELD = re.compile(r"^:(?P<name>\w+)[^:\n]*:\s*", re.MULTILINE)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?(?:\d{1,2}|[a-z])[.)])\s+", re.MULTILINE)
_CODE = re.compile(
    r"^\s*(?:>>>|\.\.\.? |@|```|\$ |In \[\d|\|.*\||\+[-=]+\+|import \w|from \w+ import|\[\d+\])|[-=~]{5}", re.MULTILINE
)

_MARKUP = [
    (re.compile(r":(?:\w+[:-])*\w+:`[~!.]*(?:([^`<]+?)\s*<[^`>]*>|([^`]+))`"), r"\1\2"),  # :class:`~a.B`, :ref:`a <b>`
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}"), r"\1"),                        # `title <address>`_
    (re.compile(r"\[([^\]\n]+)\]\((?:https?|#|\.)[^)\s]*\)"), r"\1"),            # [title](address)
    (re.compile(r"\s?\[[\w#*,]+\]_"), ""),                                       # citations [1]_
    (re.compile(r"``([^`]+)``|`(?:~\.?)?([^`]+)`_{0,2}"), r"\1\2"),               # ``code``, `name`_
    (re.compile(r"(?<![\w*])\*{1,2}([\w(][^*\n]*?)\*{1,2}(?![\w*])"), r"\1"),    # *emphasis*, **strong**
    (re.compile(r"\|(\w[^|\n]*)\|"), r"\1"),                                     # |substitution|
    (re.compile(r"::(?=\s|$)"), ":"),
]  # fmt: skip


def summary_and_body(docstring: str) -> tuple[str, list[str]] | None:
    """Return the first paragraph of a docstring, after a signature if there is one, and the prose of the rest.

    Paragraphs, list items and the descriptions of parameters, attributes and results in NumPy, Google and reST sections
    are kept, without names and types. Code, tables, links and other sections are removed.

    Returns:
        Summary and paragraphs of the body, each on one line; None if the first paragraph is not prose, or ends with a
        colon.
    """
    first, *blocks = re.split(r"\n(?:[ \t]*\n)+", _SECTION_WITHIN.sub("\n\n", docstring.strip()))
    if _SIGNATURE.match(first) and blocks:
        first, *blocks = blocks
    summary = _prose(first)
    if summary is None or not summary[0].isalpha() or summary.endswith(":"):
        return None
    return summary, [prose for text in _paragraphs(blocks) if (prose := _prose(text)) is not None]


def _paragraphs(blocks: list[str]) -> Iterator[str]:
    """Yield the texts of blocks (separated by blank lines), and of the entries of sections."""
    section, numpy_style, margin = None, False, None
    for block in blocks:
        title, underlined, body = _heading(block)
        if title is not None:
            match = _SECTION.match(title)
            section = None if match is None else "entries" if match["entries"] else "other"
            numpy_style, margin = underlined, None
        elif section is not None and not numpy_style and not block[:1].isspace():
            section = None  # a section in Google's style ends with its indentation
        if section is None:
            yield from _unsectioned(body)
        elif section == "entries" and body:
            indentation = len(body) - len(body.lstrip(" "))
            margin = indentation if margin is None else margin
            if indentation > margin:  # continues the entry above
                yield from _items(textwrap.dedent(body).strip())
            else:
                yield from _entries(textwrap.dedent(body), numpy_style)


def _heading(block: str) -> tuple[str | None, bool, str]:
    """Return the title of a block or None, whether it is underlined (NumPy style), and the rest of the block."""
    lines = block.split("\n")
    if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
        return lines[0].strip(), True, "\n".join(lines[2:])
    title = lines[0].strip().strip("#*` ")
    if _SECTION.match(title) and not lines[0][:1].isspace():
        return title, False, "\n".join(lines[1:])
    return None, False, block


def _entries(block: str, numpy_style: bool) -> Iterator[str]:
    """Yield the descriptions of a block of entries; continuation lines of an entry are indented."""
    for entry in re.split(r"\n(?=\S)", block.strip("\n")):
        first, _, description = entry.partition("\n")
        description = textwrap.dedent(description)
        if not numpy_style:
            description = f"{_NAMED.sub('', first, count=1)}\n{description}"
        yield from _items(description.strip())


def _unsectioned(block: str) -> Iterator[str]:
    """Yield the paragraph or the list items of a block; nothing for indented blocks, which are code."""
    if field := _FIELD.search(block):
        pieces = _FIELD.split(block[field.start() :])[1:]
        yield from (text for name, text in zip(pieces[::2], pieces[1::2]) if name in ("param", "return", "returns"))
        block = block[: field.start()]
    if admonition := _ADMONITION.match(block):
        block = textwrap.dedent(block[admonition.end() :].strip("\n"))
    if _BULLET.match(block) or not block[:1].isspace():
        yield from _items(block)


def _items(text: str) -> list[str]:
    """Return the items of a list, or the text itself if it is not a list."""
    return _BULLET.split(text) if _BULLET.match(text) else [text]


def _prose(paragraph: str) -> str | None:
    """Return a paragraph without markup on one line, or None if it is code, a table, or has too many symbols."""
    if _CODE.search(paragraph):
        return None
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    words = paragraph.split()
    wordlike = sum(word.strip("\"'()[],.;:!?*").replace("-", "").replace("'", "").isalpha() for word in words)
    if len(words) < 3 or wordlike < 0.65 * len(words):
        return None
    return " ".join(words)
