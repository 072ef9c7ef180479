"""Fetch as wheels the packages that another machine lacks, for its version of Python and its platform.

    python -m benchmarks.gpu.wheels --out wheels --python 3.12 --have packages.txt [--extras test lora] [--dry-run]

`--have` names a file with the packages that the other machine has, one per line (the output of `pip list` there). What
setup.cfg requires and it lacks is fetched with the versions of constraints.txt, as far as it is pure Python
or has a wheel for the platform; dependencies are those of this environment. Install the wheels there with

    python -m pip install --no-index --no-deps --target site wheels/*.whl && export PYTHONPATH=$PWD/site:$PWD
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (39, 35, 34, 31, 28, 27, 24, 17)] + ["manylinux2014_x86_64"]


def normalized(name: str) -> str:
    """Return the normalized name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_in(lines: Iterable[str]) -> set[str]:
    """Return the names at the start of lines of `pip list`, `pip freeze` or a list of names."""
    matches = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line.strip()) for line in lines)
    return {normalized(match.group()) for match in matches if match}


def missing(distribution: str, have: set[str], extras: Iterable[str] = ()) -> list[str]:
    """Return the packages that a distribution needs, directly or not, and that are not among `have`.

    Raises:
        PackageNotFoundError: if the distribution is not installed here.
    """
    result: list[str] = []
    queue = [(distribution, extra) for extra in ("", *extras)]
    seen = set(queue)
    while queue:
        name, extra = queue.pop(0)
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            package = normalized(requirement.name)
            if not needed or package in have:
                continue
            if package not in result:
                result.append(package)
            for inner in ("", *requirement.extras):
                if (package, inner) not in seen:
                    seen.add((package, inner))
                    queue.append((package, inner))
    return result


def download_command(packages: list[str], out: Path, python: str, platforms: list[str]) -> list[str]:
    """Return the command that fetches the wheels, without dependencies of their own."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(out)]
    command += ["--python-version", python, "--implementation", "cp"]
    command += [part for platform in platforms for part in ("--platform", platform)]
    return [*command, "--constraint", str(ROOT / "constraints.txt"), *packages]


def main() -> int:
    """Fetch the wheels, or print their names; return the exit status of pip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("wheels"))
    parser.add_argument("--python", default="3.12", help="version of Python there")
    parser.add_argument("--platform", nargs="+", default=PLATFORMS)
    parser.add_argument("--have", type=Path, required=True, help="file with the packages that are there")
    parser.add_argument("--extras", nargs="*", default=[], help="extras of setup.cfg to include")
    parser.add_argument("--without", nargs="*", default=[], help="packages to leave out, such as wandb")
    parser.add_argument("--dry-run", action="store_true", help="print the names of the packages and end")
    arguments = parser.parse_args()
    have = names_in(arguments.have.read_text(encoding="utf-8").splitlines()) | names_in(arguments.without)
    packages = missing("precis-suite", have, arguments.extras)
    print(f"{len(packages)} packages are missing there: {', '.join(packages) or 'none'}", flush=True)
    if arguments.dry_run or not packages:
        return 0
    return subprocess.run(download_command(packages, arguments.out, arguments.python, arguments.platform)).returncode


if __name__ == "__main__":
    sys.exit(main())
