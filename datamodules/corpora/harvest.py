"""Extraction of docstrings from source files, without importing them."""

import ast
import hashlib
import os
import warnings
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from datamodules.corpora.parallel import mapper, progress_bar
from datamodules.corpora.prose import summary_and_body

# Folders of tests, of vendored packages, and of this project are left out.
_LEFT_OUT = {"test", "tests", "testing", "_testing", "idlelib", "lib2to3", "turtledemo", "__pycache__"}
_LEFT_OUT |= {"vendor", "_vendor", "vendored", "_vendored", "extern", "site-packages", "dist-packages"}
_OURS = {"callbacks", "datamodules", "experiments", "lightning_modules", "precis"}

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
    """Return the Python files below folders, of all packages and modules or of some packages alone.

    Each is a name relative to its folder, and a path; they are sorted.
    """
    files = []
    for folder in folders:
        for parent, subfolders, names in os.walk(folder):
            excluded = set()
            if Path(parent) == folder and packages is None:
                excluded = _OURS
            elif Path(parent) == folder:  # only the given packages, and no modules next to them
                excluded, names = set(subfolders).difference(packages), []
            # `os.walk` does not enter the folders that are removed from this list
            subfolders[:] = [name for name in subfolders if name not in _LEFT_OUT | excluded]
            paths = [Path(parent, name) for name in names if name.endswith(".py") and not name.startswith("test_")]
            files += [(path.relative_to(folder).as_posix(), path) for path in paths if path.is_file()]
    return sorted(files)


def digest_of(files: Iterable[tuple[str, Path]]) -> str:
    """Return a digest of the names and contents of files."""
    total = hashlib.sha256()
    for name, path in files:
        total.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def harvest(files: list[tuple[str, Path]], num_proc: int = 1) -> list[Docstring]:
    """Return the distinct docstrings that are prose, in the order of the files.

    Files that this version of Python cannot parse are skipped.
    """
    return _distinct(_of_file, files, num_proc)


def harvest_modules(files: list[tuple[str, Path]], num_proc: int = 1) -> list[Docstring]:
    """Return the docstrings of modules as summaries of their definitions, in the order of the files.

    The body has one text for each function, class and method whose docstring is prose: the name within the module, a
    colon and the docstring. Files that this version of Python cannot parse are skipped.
    """
    return _distinct(_of_module, files, num_proc)


def _distinct(
    read_file: Callable[[tuple[str, Path]], list[Docstring]], files: list[tuple[str, Path]], num_proc: int
) -> list[Docstring]:
    """Apply `read_file` to files and return the docstrings, each pair of summary and body once."""
    distinct: dict[tuple[str, tuple[str, ...]], Docstring] = {}
    names: set[str] = set()
    with mapper(num_proc) as mapped, progress_bar() as progress:
        task = progress.add_task("reading docstrings", total=len(files))
        for docstrings in mapped(read_file, files):
            progress.advance(task)
            for docstring in docstrings:
                if docstring.name not in names:  # not an overload or a conditional redefinition
                    names.add(docstring.name)
                    distinct.setdefault((docstring.summary.lower(), docstring.body), docstring)
    return list(distinct.values())


def _of_file(file: tuple[str, Path]) -> list[Docstring]:
    name, path = file
    tree = _parsed(path)
    return [] if tree is None else list(_of_node(tree, _module_name(name), path))


def _of_module(file: tuple[str, Path]) -> list[Docstring]:
    name, path = file
    tree = _parsed(path)
    docstring = ast.get_docstring(tree) if tree is not None else None
    prose = summary_and_body(docstring) if docstring else None
    if prose is None or not MIN_SUMMARY <= len(prose[0].split()) <= MAX_SUMMARY:
        return []
    parts = dict(_definitions(tree, ""))
    if len(parts) < MIN_FUNCTIONS:
        return []
    return [Docstring(_module_name(name), f"{path}:{tree.body[0].lineno}", prose[0], tuple(parts.values()))]


def _definitions(node: ast.AST, prefix: str) -> Iterable[tuple[str, str]]:
    """Yield name and text of each function, class and method; functions inside functions are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(child)
            if docstring and (prose := summary_and_body(docstring)):
                summary, body = prose
                yield prefix + child.name, " ".join([f"{prefix}{child.name}: {summary}", *body])
            if isinstance(child, ast.ClassDef):
                yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler):  # inside `if` or `try`
            yield from _definitions(child, prefix)


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _parsed(path: Path) -> ast.Module | None:
    """Return the syntax tree of a file, or None if this version of Python cannot parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_node(node: ast.AST, name: str, path: Path) -> Iterable[Docstring]:
    """Yield the docstrings of a module, class or function and of all definitions inside it."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring and (prose := summary_and_body(docstring)):
            summary, body = prose
            long_enough = sum(len(text.split()) for text in body) >= MIN_BODY
            if long_enough and MIN_SUMMARY <= len(summary.split()) <= MAX_SUMMARY:
                yield Docstring(name, f"{path}:{node.body[0].lineno}", summary, tuple(body))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            inner = f"{name}.{child.name}" if hasattr(child, "name") else name
            yield from _of_node(child, inner, path)
