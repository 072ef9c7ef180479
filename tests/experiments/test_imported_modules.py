"""What a command imports before it answers."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "pytorch_lightning", "transformers", "datasets", "matplotlib", "jsonargparse", "wandb", "yaml")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["fitt"], ["--trust", "trian"]], ids=" ".join)
def test_help_version_and_unknown_commands_import_no_library(arguments):
    script = (
        "import sys; from experiments.cli import main; status = main(sys.argv[1:]); "
        f"loaded = [name for name in {HEAVY} if name in sys.modules]; "
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_unknown_command_is_an_error_with_the_nearest_name(precis):
    done = precis("evaluat")
    assert done.status == 1 and "did you mean evaluate?" in done.err
