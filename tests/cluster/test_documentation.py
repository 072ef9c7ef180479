"""The commands of docs/clusters.md, as they stand there, on a real SLURM."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_commands_that_are_shown_work(slurm, tmp_path):
    for name in ("callbacks", "datamodules", "experiments", "lightning_modules"):
        (tmp_path / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "160"}  # room for whole names in tables
    text, outputs = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8"), []
    for block in re.findall(r"^```bash\n(.*?)^```", text, flags=re.S | re.M):
        command = ["bash", "-e", "-u", "-c", block]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
        slurm.wait_until_empty()
    _, launched, looked, again, by_hand, parsed, dashboards = outputs
    assert "2 points: 0 finished, 2 to run" in launched and "submitted 2 points as job" in launched
    assert "2 points: 2 finished" in looked and "== coverage=true (finished)" in looked
    assert again.startswith("2 points, 0 to run") and "coverage=false" in again
    log = (tmp_path / "first.log").read_text()
    assert "Submitted batch job" in by_hand and "`max_steps=6` reached" in log, log
    assert (tmp_path / "runs" / "first" / "checkpoints" / "last.ckpt").is_file()
    assert "Submitted batch job" in parsed
    told = [(tmp_path / f"parse-{task}.log").read_text() for task in (0, 1)]
    assert all("documents parsed, " in text for text in told), told
    assert "throughput/documents_per_second" in dashboards
