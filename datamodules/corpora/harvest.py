"""Docstrings out of source files, without importing any of them."""

import ast
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from datamodules.corpora.parallel import mapper, progress_bar
from datamodules.corpora.prose import summary_and_body

# Tests, copies of other packages, and ourselves.
_LEFT_OUT = {"test", "tests", "testing", "_testing", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_LEFT_OUT |= {"vendor", "_vendor", "vendored", "_vendored", "extern", "site-packages", "dist-packages"}
_OURS = {"callbacks", "datamodules", "experiments", "lightning_modules"}

MIN_BODY, MIN_SUMMARY, MAX_SUMMARY = 40, 3, 60  # words
MIN_FUNCTIONS = 3  # of a module that summarizes them


@dataclass(frozen=True)
class Docstring:
    """A docstring that reads as a document and its summary.

    Attributes:
        name: module and qualified name.
        where: file and line.
        summary: the first paragraph.
        body: the paragraphs of prose behind it.
    """

    name: str
    where: str
    summary: str
    body: tuple[str, ...]


def source_files(folders: Iterable[Path]) -> list[tuple[str, Path]]:
    """Python files below the folders: name within its folder, and path; in the order of names, folder by folder."""
    found = []
    for folder in folders:
        for place, inside, names in os.walk(folder):
            ours = _OURS if Path(place) == folder else set()
            inside[:] = [name for name in inside if name not in _LEFT_OUT | ours]
            paths = [Path(place, name) for name in names if name.endswith(".py") and not name.startswith("test_")]
            found += [(path.relative_to(folder).as_posix(), path) for path in paths if path.is_file()]
    return sorted(found)


def digest_of(files: Iterable[tuple[str, Path]]) -> str:
    """One digest of the names and contents of files."""
    total = hashlib.sha256()
    for name, path in files:
        total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def harvest(files: list[tuple[str, Path]], num_proc: int = 1) -> list[Docstring]:
    """The docstrings of the files that read as prose, each distinct one once, in the order of the files.

    A file that is no Python of this version is passed over.
    """
    return _distinct(_of_file, files, num_proc)


def harvest_modules(files: list[tuple[str, Path]], num_proc: int = 1) -> list[Docstring]:
    """The docstrings of modules as summaries of what is defined in them, in the order of the files.

    The body has a text for every function, class and method with a docstring that reads as prose, in their order: its
    name within the module, the docstring's first paragraph, and what follows. A file that is no Python of this version
    is passed over.
    """
    return _distinct(_of_module, files, num_proc)


def _distinct(
    read: Callable[[tuple[str, Path]], list[Docstring]], files: list[tuple[str, Path]], num_proc: int
) -> list[Docstring]:
    """What is read from the files, each summary and body once."""
    kept: dict[tuple[str, tuple[str, ...]], Docstring] = {}
    names: set[str] = set()
    with mapper(num_proc) as mapped, progress_bar() as progress:
        task = progress.add_task("reading docstrings", total=len(files))
        for found in mapped(read, files):
            progress.advance(task)
            for docstring in found:
                if docstring.name not in names:  # a second definition, of an overload or behind an `if`
                    names.add(docstring.name)
                    kept.setdefault((docstring.summary.lower(), docstring.body), docstring)
    return list(kept.values())


def _of_file(file: tuple[str, Path]) -> list[Docstring]:
    name, path = file
    tree = _parsed(path)
    return [] if tree is None else list(_of_node(tree, _module_name(name), path))


def _of_module(file: tuple[str, Path]) -> list[Docstring]:
    name, path = file
    tree = _parsed(path)
    docstring = ast.get_docstring(tree) if tree is not None else None
    found = summary_and_body(docstring) if docstring else None
    if found is None or not MIN_SUMMARY <= len(found[0].split()) <= MAX_SUMMARY:
        return []
    parts = dict(_definitions(tree, ""))
    if len(parts) < MIN_FUNCTIONS:
        return []
    return [Docstring(_module_name(name), f"{path}:{tree.body[0].lineno}", found[0], tuple(parts.values()))]


def _definitions(node: ast.AST, prefix: str) -> Iterable[tuple[str, str]]:
    """Name and text of every function, class and method within, functions' own left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(child)
            if docstring and (found := summary_and_body(docstring)):
                yield prefix + child.name, " ".join([f"{prefix}{child.name}: {found[0]}", *found[1]])
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler):  # behind an `if` or `try`
            yield from _definitions(child, prefix)


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _parsed(path: Path) -> ast.Module | None:
    """The syntax tree of a file, None if it is no Python of this version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other people's escape sequences
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_node(node: ast.AST, name: str, path: Path) -> Iterable[Docstring]:
    """The docstrings of a module, class or function and of all that is defined within it."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring and (found := summary_and_body(docstring)):
            summary, body = found
            long_enough = sum(len(text.split()) for text in body) >= MIN_BODY
            if long_enough and MIN_SUMMARY <= len(summary.split()) <= MAX_SUMMARY:
                yield Docstring(name, f"{path}:{node.body[0].lineno}", summary, tuple(body))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            inner = f"{name}.{child.name}" if hasattr(child, "name") else name
            yield from _of_node(child, inner, path)
