"""Extraction of docstrings from source files, without importing them."""

import ast
import hashlib
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from datamodules.corpora.parallel import mapper, progress_bar

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
    are kept, each on one line, without names and types. Code, tables, links and other sections are removed. None if the
    first paragraph is not prose, does not begin with a letter, or ends with a colon.
    """
    separated = _SECTION_WITHIN.sub("\n\n", docstring.strip())  # a blank line before each title of a section
    first_block, *blocks = re.split(r"\n(?:[ \t]*\n)+", separated)  # at blank lines
    if _SIGNATURE.match(first_block) and blocks:
        first_block, *blocks = blocks
    summary = _prose(first_block)
    if summary is None or not summary[0].isalpha() or summary.endswith(":"):
        return None
    return summary, [prose for text in _paragraphs(blocks) if (prose := _prose(text)) is not None]


def _paragraphs(blocks: list[str]) -> Iterator[str]:
    """Yield the paragraphs in blocks (texts between blank lines); each list item or entry of a section becomes one."""
    section: str | None = None  # "entries" (parameters etc.), "other" (left out), or None in plain text
    numpy_style = False  # titles are underlined, and names stand on a line above the description
    margin: int | None = None  # indentation of the first entry of the section; None before it
    for block in blocks:
        title, underlined, body = _heading(block)
        if title is not None:
            numpy_style, margin, section = underlined, None, None
            if match := _SECTION.match(title):  # after any other title comes plain text
                section = "entries" if match["entries"] else "other"
        elif section is not None and not numpy_style and not block[:1].isspace():
            section = None  # a section in Google's style ends with its indentation
        if section is None:
            yield from _unsectioned_texts(body)
        elif section == "entries" and body:
            indentation = len(body) - len(body.lstrip(" "))
            margin = indentation if margin is None else margin
            if indentation > margin:  # continues the entry above
                yield from _items(textwrap.dedent(body).strip())
            else:
                yield from _entries(textwrap.dedent(body), numpy_style)


def _heading(block: str) -> tuple[str | None, bool, str]:
    """Return the title of a block (None without one), whether it is underlined (NumPy style), and the rest."""
    lines = block.split("\n")
    if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
        return lines[0].strip(), True, "\n".join(lines[2:])
    title = lines[0].strip().strip("#*` ")  # without Markdown
    if _SECTION.match(title) and not lines[0][:1].isspace():  # an indented line belongs to the section before
        return title, False, "\n".join(lines[1:])
    return None, False, block


def _entries(block: str, numpy_style: bool) -> Iterator[str]:
    """Yield the descriptions of a block of entries, such as parameters, without their names and types."""
    for entry in re.split(r"\n(?=\S)", block.strip("\n")):  # continuation lines of an entry are indented
        first_line, _, description = entry.partition("\n")  # in NumPy style, the first has name and type
        description = textwrap.dedent(description)
        if not numpy_style:  # the description begins on the line of the name
            description = f"{_NAMED.sub('', first_line, count=1)}\n{description}"
        yield from _items(description.strip())


def _unsectioned_texts(block: str) -> Iterator[str]:
    """Yield the paragraph or list items of a block without a heading; nothing for an indented block, which is code."""
    if field := _FIELD.search(block):  # reST fields at its end, `:param name: text`; `:type name:` etc. are left out
        pieces = _FIELD.split(block[field.start() :])[1:]  # without the empty text before: name, text, name, text, ...
        yield from (text for name, text in zip(pieces[::2], pieces[1::2]) if name in ("param", "return", "returns"))
        block = block[: field.start()]
    if admonition := _ADMONITION.match(block):  # such as `.. note::`; its text is indented, but is not code
        block = textwrap.dedent(block[admonition.end() :].strip("\n"))
    if _BULLET.match(block) or not block[:1].isspace():
        yield from _items(block)


def _items(text: str) -> list[str]:
    """Return the items of a list, or the text itself if it is not a list."""
    return _BULLET.split(text) if _BULLET.match(text) else [text]


def _prose(paragraph: str) -> str | None:
    """Return a paragraph on one line without markup; None for code, tables, under 3 words, or too few of letters."""
    if _CODE.search(paragraph):
        return None
    for pattern, replacement in _MARKUP:
        paragraph = pattern.sub(replacement, paragraph)
    words = paragraph.split()
    # number of words of letters only, apart from punctuation around them, and hyphens and apostrophes in them
    alphabetic = sum(word.strip("\"'()[],.;:!?*").replace("-", "").replace("'", "").isalpha() for word in words)
    if len(words) < 3 or alphabetic < _MIN_ALPHABETIC * len(words):
        return None
    return " ".join(words)


# Folders of tests, of vendored packages, and of this project are left out.
_LEFT_OUT = {"test", "tests", "testing", "_testing", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_LEFT_OUT |= {"vendor", "_vendor", "vendored", "_vendored", "extern", "site-packages", "dist-packages"}
_OURS = {"callbacks", "datamodules", "experiments", "lightning_modules", "precis"}

_MIN_ALPHABETIC = 0.65  # fraction of words of letters in prose; formulas and lists of values have fewer
MIN_BODY, MIN_SUMMARY, MAX_SUMMARY = 40, 3, 60  # words
MIN_FUNCTIONS = 3  # definitions with a docstring, for a module to be a document


@dataclass(frozen=True)
class Docstring:
    """A docstring as a document with its summary."""

    name: str  # module and qualified name
    where: str  # file and line
    summary: str  # the first paragraph
    body: tuple[str, ...]  # the other paragraphs of prose


def source_files(folders: Iterable[Path], packages: Collection[str] | None = None) -> list[tuple[str, Path]]:
    """Return the Python files below folders without their tests, as sorted pairs of name and path.

    A name is relative to its folder. `packages` are the only packages to read; by default all packages and modules.
    """
    files = []
    for folder in folders:
        for parent, subfolders, names in os.walk(folder):
            excluded = set()
            if Path(parent) == folder and packages is None:
                excluded = _OURS  # packages of this project, which may be installed there
            elif Path(parent) == folder:  # only the given packages, and no modules next to them
                excluded, names = set(subfolders).difference(packages), []
            # `os.walk` does not enter folders that are removed from this list: tests, and copies of other packages
            subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT | excluded]
            paths = [Path(parent, name) for name in names if name.endswith(".py") and not name.startswith("test_")]
            files += [(path.relative_to(folder).as_posix(), path) for path in paths if path.is_file()]  # no dead link
    return sorted(files)


def digest_of(files: Iterable[tuple[str, Path]]) -> str:
    """Return a digest of the names and contents of files."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def docstrings_of_file(file: tuple[str, Path]) -> list[Docstring]:
    """Return the docstrings of a file that are prose; an empty list if this version of Python cannot parse it."""
    name, path = file  # see `source_files`
    return list(_docstrings_of_node(_parsed(path), _module_name(name), path))


def docstring_of_module(file: tuple[str, Path]) -> list[Docstring]:
    """Return a list of one document for a module: its docstring is the summary of the docstrings of its definitions.

    The body has one text for each function, class and method whose docstring is prose: the name within the module, a
    colon and the docstring. The list is empty if the summary is too short or long, or there are too few definitions.
    """
    name, path = file  # see `source_files`
    tree = _parsed(path)
    prose = summary_and_body(ast.get_docstring(tree) or "")
    summary = "" if prose is None else prose[0]
    if not MIN_SUMMARY <= len(summary.split()) <= MAX_SUMMARY:
        return []
    parts = dict(_definitions(tree, prefix=""))  # by name: of definitions with the same name, the last one
    if len(parts) < MIN_FUNCTIONS:
        return []
    return [Docstring(_module_name(name), f"{path}:{tree.body[0].lineno}", summary, tuple(parts.values()))]


def harvest(
    files: list[tuple[str, Path]],
    num_proc: int = 1,
    read_file: Callable[[tuple[str, Path]], list[Docstring]] = docstrings_of_file,
) -> list[Docstring]:
    """Return the docstrings that `read_file` finds in `files`, pairs of name and path, in order, without duplicates."""
    distinct: dict[tuple[str, tuple[str, ...]], Docstring] = {}  # by lower-case summary, and body
    names: set[str] = set()  # qualified names of the docstrings so far
    with mapper(num_proc) as map_in_processes, progress_bar() as progress:
        task = progress.add_task("reading docstrings", total=len(files))
        for docstrings in map_in_processes(read_file, files):
            progress.advance(task)
            for docstring in docstrings:
                if docstring.name not in names:  # not an overload or a conditional redefinition
                    names.add(docstring.name)
                    distinct.setdefault((docstring.summary.lower(), docstring.body), docstring)
    return list(distinct.values())


def _definitions(node: ast.AST, prefix: str) -> Iterable[tuple[str, str]]:
    """Yield (NAME, "NAME: docstring") of functions, classes and methods with prose, except those inside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if prose := summary_and_body(ast.get_docstring(child) or ""):
                summary, body = prose
                yield prefix + child.name, " ".join([f"{prefix}{child.name}: {summary}", *body])
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler):  # inside `if` or `try`
            yield from _definitions(child, prefix)


def _module_name(file: str) -> str:  # "torch/nn/__init__.py" -> "torch.nn"
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which is empty if this version of Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # invalid, with null bytes, or nested too deeply
        return ast.Module(body=[], type_ignores=[])


def _docstrings_of_node(node: ast.AST, name: str, path: Path) -> Iterable[Docstring]:
    """Yield the docstrings of usable length of a module, class or function, named `name`, and of definitions in it."""
    may_have_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if may_have_docstring and (prose := summary_and_body(ast.get_docstring(node) or "")):
        summary, body = prose
        long_enough = sum(len(text.split()) for text in body) >= MIN_BODY
        if long_enough and MIN_SUMMARY <= len(summary.split()) <= MAX_SUMMARY:
            yield Docstring(name, f"{path}:{node.body[0].lineno}", summary, tuple(body))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):  # also `if`, `with` and so on, which have no name and may hold definitions
            child_name = f"{name}.{child.name}" if hasattr(child, "name") else name
            yield from _docstrings_of_node(child, child_name, path)
