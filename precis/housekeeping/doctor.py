"""`precis doctor`: versions, devices, caches, the discourse parser, extras, and what is missing."""

import json
import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from packaging.requirements import Requirement
from rich.console import Console
from rich.filesize import decimal as format_size
from rich.table import Table
from rich.text import Text

from datamodules.cache_folder import default_cache, list_entries
from datamodules.text.lines import counted, printable_line
from precis.config.parsers import explain_choice
from precis.runs.run_state import logged_in

PACKAGE = "precis-suite"
DEVELOPMENT = ("test", "docs")  # extras that nobody needs to use the suite


def doctor(arguments: list[str]) -> None:
    """`precis doctor`: show what is installed and what is missing; exit status 1 if a required package is."""
    parser = ArgumentParser(prog="precis doctor", description=doctor.__doc__, exit_on_error=False)
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    required, extras = check_requirements()  # (version, problem) by package, and states by extra
    versions = {name: version or "missing" for name, (version, _) in required.items()}
    problems = [problem for _, problem in required.values() if problem]
    report = {
        "versions": {"precis": metadata.version(PACKAGE), "python": platform.python_version()} | versions,
        "devices": _describe_devices(),
        "caches": _describe_caches(),
        "parser": explain_choice("default"),  # which discourse parser is the default here, and why
        "weights_and_biases": "logged in: runs are uploaded" if logged_in() else "not logged in: runs stay offline",
        "slurm": "sbatch is on PATH" if shutil.which("sbatch") else "no sbatch on PATH: sweeps run on this machine",
        "extras": extras,
    }
    if options.json:
        print(json.dumps(report | {"problems": problems}, ensure_ascii=False, indent=1))
    else:
        _print_report(report)
        Console().print(Text("\n".join(problems), "red") if problems else "everything that is required is installed")
    if problems:
        raise SystemExit(1)


def check_requirements() -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return (version, problem or "") of each required package; and of each extra "installed", or what it lacks."""
    required: dict[str, tuple[str, str]] = {}
    extras = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    missing: dict[str, list[str]] = {name: [] for name in extras if name not in DEVELOPMENT}  # packages by extra
    for requirement in map(Requirement, metadata.requires(PACKAGE) or []):
        version, problem = _check_installed(requirement)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):  # needed without extras
            required[requirement.name] = version, problem
            continue
        for extra, names in missing.items():
            if problem and requirement.marker.evaluate({"extra": extra}):
                names.append(requirement.name)
    remedy = "lacks {}: pip install '" + PACKAGE + "[{}]'"  # names of packages, then the extra
    lacking = {extra: remedy.format(", ".join(names), extra) for extra, names in missing.items() if names}
    return required, dict.fromkeys(missing, "installed") | lacking


def _check_installed(requirement: Requirement) -> tuple[str, str]:
    """Return (version, problem) of a package: "" for the version if it is missing, "" for the problem if it fits."""
    name, specifier = requirement.name, requirement.specifier
    remedy = f"pip install '{name}{specifier}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return "", f"{name} is not installed: {remedy}"
    fits = specifier.contains(version, prereleases=True)  # a user may have chosen a pre-release
    return version, "" if fits else f"{name} {version} does not fit {specifier}: {remedy}"


def _describe_devices() -> list[str]:
    """Return a line for the processor and one for each accelerator that torch can use."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1  # that this job may use
    threads = os.environ.get("OMP_NUM_THREADS")
    lines = [counted(cores, "CPU core") + (f", OMP_NUM_THREADS={threads}" if threads else "")]
    try:
        import torch

        from datamodules.loading import default_workers
    except ImportError as error:
        return [*lines, f"torch cannot be imported: {error}"]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        lines.append(f"cuda:{index} {name}, {format_size(free)} of {format_size(total)} free")
    if torch.backends.mps.is_available():
        lines.append("mps")
    if len(lines) == 1:  # only the processor
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        lines.append(f"no GPU that torch {torch.__version__} can use ({build}); see docs/hardware.md")
    workers = default_workers("cuda" if torch.cuda.is_available() else "cpu")  # processes of each loader
    lines.append(f"data.num_workers: {workers} by default on one device, 0 where batches are made quickly")
    return lines


def _describe_caches() -> dict[str, str]:
    """Return size and free disk space, as text by path, of the cache folders of the suite and of Hugging Face."""
    folder = default_cache()
    # the hub's cache as huggingface_hub determines it, but without importing it, since it may be missing
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    entries = list(list_entries(folder)) if folder.is_dir() else []
    files = (path for path in hub.rglob("*") if path.is_file() and not path.is_symlink())  # link targets are counted
    caches = {
        str(folder): f"{counted(len(entries), 'entry')}, {format_size(sum(entry.nbytes for entry in entries))}",
        str(hub): f"Hugging Face hub, {format_size(sum(path.stat().st_size for path in files))}",
    }
    for path in (folder, hub):
        parent = next(place for place in (path, *path.absolute().parents) if place.exists())  # nearest that exists
        writable = "" if os.access(parent, os.W_OK) else ", not writable"
        caches[str(path)] += f"; {format_size(shutil.disk_usage(parent).free)} free{writable}"
    return caches


def _print_report(report: dict[str, Any]) -> None:
    """Print a table of heading, name and text; a value of the report is a text, a list of texts, or texts by name."""
    table = Table(show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")  # long paths continue on the next line
    for heading, content in report.items():
        lines = [content] if isinstance(content, str) else content  # a list; unused for a dict
        entries = list(content.items()) if isinstance(content, dict) else [("", line) for line in lines]
        for number, (name, text) in enumerate(entries):
            style = "yellow" if text.startswith("lacks ") or text == "missing" else ""  # a missing extra or package
            title = "" if number else heading.replace("_", " ")  # once, in the first line
            table.add_row(title, printable_line(name), Text(printable_line(text), style))
    Console().print(table)
