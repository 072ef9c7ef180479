"""A stand-in for `precis` in tests of launchers: it writes the files of a run, fails, or waits for a signal."""

import sys
from pathlib import Path

STUB = """
import pathlib, signal, sys, time
command, *rest = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in rest if "=" in word)
if command == "test" and "nottest" in rest[1]:
    sys.exit("no test today")
run = pathlib.Path(given.get("run_dir", "."))
def save(number, frame):
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints" / "last.ckpt").write_text("half way")
    sys.exit(128 + number)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, save)
resumed = given.get("resume") == "auto" and (run / "checkpoints" / "last.ckpt").exists()
print("started", command, "resumed" if resumed else "anew", flush=True)
text = (run / "point.yaml").read_text() if command == "fit" else ""
if "break" in text:
    sys.exit("it broke")
while "wait" in text and not resumed:
    (run / "waits").touch()
    time.sleep(0.02)
"""


def write_stub(folder: Path) -> list[str]:
    path = folder / "stub.py"
    path.write_text(STUB, encoding="utf-8")
    return [sys.executable, str(path)]
