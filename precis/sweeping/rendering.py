"""`precis sweep render FILE --template NAME`: a sweep as a file for another scheduler, from a template to edit.

Templates are of Jinja. They have `sweep` and `name` (of the file; `name` has letters, digits and hyphens), `folder`
(of the sweep), `points` with `index`, `label` and `folder`, the values of `--values`, the function `comment` (text as a
part of one line), and the filters `sh` (one word of a shell), `tojson` (a value in YAML) and `kubernetes` (text in
which `$(NAME)` stays as it is).

Values of config keys are in the run folders, never in the file, so that no shell reads them.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.lines import counted, printable_line
from precis.config.shipped import SWEEPS, find_shipped
from precis.sweeping.grid import read_sweep
from precis.sweeping.job import Job
from precis.sweeping.sweep_folder import jobs_of, record

TEMPLATES = {path.stem: path for path in sorted((Path(__file__).parent / "templates").iterdir())}  # by name
_LONGEST_NAME = 50  # Kubernetes appends the index to a job's name, and pod names have at most 63 characters


def render(arguments: list[str]) -> None:
    """`precis sweep render FILE --template NAME`: write the points of a sweep and a file for another scheduler.

    All points are checked as by `precis sweep FILE`, and nothing is started. The file is in the sweep folder, where
    `precis sweep status` shows the points as they finish."""
    parser = ArgumentParser(prog="precis sweep render", description=render.__doc__, exit_on_error=False)
    parser.add_argument("file", type=Path, help="a sweep file, or the short name of one of the suite")
    parser.add_argument("--template", type=str, required=True, help=f"{', '.join(TEMPLATES)}, or a file made from one")
    parser.add_argument("--out", type=Path | None, default=None, help="sweep folder; by default runs/NAME of FILE")
    parser.add_argument("--values", type=dict[str, Any], default={}, help="values of the template: {image: precis:1}")
    options = parser.parse_args(arguments)
    template = find_template(options.template)
    sweep = read_sweep(find_shipped(str(options.file), SWEEPS))
    if sweep.search:
        raise UserError(f"{sweep.path}: a search has no points before it runs; its workers are `precis sweep work`")
    out = options.out or Path("runs") / sweep.path.stem
    target = out / template.name
    if target.resolve() == template.resolve():
        raise UserError(f"--template {template}: would be overwritten by its result; move it out of {out}")
    from precis.sweeping.composition import check_buildable, compose  # imports torch and Lightning

    points = compose(sweep)
    jobs = jobs_of(sweep, points, out)
    text = fill_template(template, sweep.path.stem, out, jobs, options["values"])  # `options.values` is a method
    check_buildable((point.label, point.config) for point in points)
    record(sweep, points, out)  # writes sweep.yaml and points.json
    for job in jobs:
        job.prepare()  # writes its config to its run folder
    atomic_write(target, text)
    print(f"{target}: {counted(len(jobs), 'point')}; its first lines have the command that starts them")


def find_template(name: str) -> Path:
    """Return the path of a template by its name in the suite or by its path; a `UserError` if there is none."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    if not Path(name).is_file():
        raise UserError(f"--template {name}: no such file, and none of {', '.join(TEMPLATES)}")
    return Path(name)


def fill_template(template: Path, sweep: str, folder: Path, jobs: Sequence[Job], values: Mapping[str, Any]) -> str:
    """Return the text of a Jinja template for jobs of a sweep; a `UserError` if it has a mistake or lacks a value."""
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment  # templates may come from somebody else

    environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)  # strict: no unknown name
    environment.filters |= {"sh": _shell_word, "kubernetes": lambda text: str(text).replace("$", "$$")}  # $$: literal $
    fields = {
        "sweep": printable_line(sweep),  # its name
        "name": re.sub(r"[^a-z0-9]+", "-", sweep.lower())[:_LONGEST_NAME].strip("-") or "sweep",  # for Kubernetes
        "folder": str(folder),  # of the sweep
        "points": [{"index": n, "label": job.label, "folder": str(job.folder)} for n, job in enumerate(jobs)],
        "comment": printable_line,  # a function: text as a part of one line, for comments in the template
    }
    if reserved := sorted(set(values) & set(fields)):
        raise UserError(f"--values: {', '.join(reserved)} are set by the sweep; leave them out")
    try:
        return environment.from_string(template.read_text(encoding="utf-8")).render(**fields, **values)
    except (TemplateError, TypeError, ValueError) as error:
        line = f":{error.lineno}" if getattr(error, "lineno", None) else ""  # of syntax errors
        reason = " ".join(str(error).split())
        raise UserError(f"{template}{line}: {reason}; correct the template, or pass the value by --values") from None


def _shell_word(value: Any) -> str:
    """Quote a value as one word of a POSIX shell; a `ValueError` for a null character, which no argument can have."""
    text = str(value)
    if "\0" in text:
        raise ValueError(f"{text!r} has a null character")
    return shlex.quote(text)
