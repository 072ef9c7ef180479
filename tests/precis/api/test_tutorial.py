"""The notebook and the page of the Python API run from top to bottom."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

import precis as api

pytestmark = pytest.mark.integration

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def cells():
    """Sources of the notebook's code cells."""
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "outputs are stripped"
    return ["".join(cell["source"]) for cell in code]


def run_cell(source: str, names: dict, precis) -> object:
    """Run a code cell; a line with `!` is a command. Return the value of a last line that is an expression."""

    def command(line: str) -> None:
        precis(*shlex.split(line)[1:]).succeeded()

    names["command"] = command
    tree = ast.parse(re.sub(r"^!(precis .*)$", lambda match: f"command({match[1]!r})", source, flags=re.M))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tutorial.ipynb", "exec"), names)
    return eval(compile(ast.Expression(last.value), "tutorial.ipynb", "eval"), names) if last else None


@pytest.mark.integration
def test_the_notebook_runs(cells, precis, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    values = [run_cell(source, names, precis) for source in cells]
    assert values[-2]._repr_svg_().startswith("<svg") and values[-2] is names["discourse"]
    frame = names["frame"]
    assert set(frame.index.get_level_values("measure")) == {"rouge1", "rougeLsum"} and len(frame) == 4
    assert len(names["evaluation"].summaries) == 8


def test_the_snippets_of_the_page_run(run_folder, precis, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert precis("test", "--run", run_folder).status == 0
    for name in ("demo", "one", "other"):
        (tmp_path / "runs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "runs" / name).symlink_to(run_folder)
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / "python_api.md").read_text(encoding="utf-8"), flags=re.S)
    names = {"precis": api}
    for snippet in snippets[:2] + snippets[3:]:
        exec(snippet, names)
    assert len(snippets) == 4 and names["discourse"].edus
