"""JSON files of run and sweep folders."""

import json
from pathlib import Path
from typing import Any

from datamodules.documents import CorpusError

REMEDY = "restore it, or remove it and make it again"


def read_json(path: Path, *keys: str) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: path of the file.
        keys: keys that the object must have.

    Raises:
        CorpusError: if the file has no JSON object with these keys; the message has its name.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise CorpusError(f"{path}: cannot be read ({reason}); {REMEDY}") from None
    if not isinstance(content, dict):
        raise CorpusError(f"{path}: not a JSON object; {REMEDY}")
    if missing := [key for key in keys if key not in content]:
        raise CorpusError(f"{path}: the key {missing[0]!r} is missing; {REMEDY}")
    return content


def folder_beside(path: Path, name: object) -> Path:
    """Return the folder next to a JSON file that names it.

    Raises:
        CorpusError: if the name leads to another place, which a file of unknown origin could do.
    """
    if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
        raise CorpusError(f"{path}: {name!r} is not the name of a folder beside this file; {REMEDY}")
    return path.parent / name
