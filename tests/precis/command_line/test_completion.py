"""`precis completion`: the script that it prints completes commands and options in a real shell."""

import shutil
import subprocess

import pytest

from precis.config.command_table import COMMANDS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The completion script of bash."""
    from precis.command_line.cli import main

    path = tmp_path_factory.mktemp("shell") / "precis.bash"
    with path.open("w", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["completion", "bash"]) == 0
    return path


def complete(script, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    line = (
        f"source {script}; COMP_WORDS=(precis {' '.join(words)}); COMP_CWORD={len(words)}; "
        f"_shtab_precis precis '{words[-1]}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_and_options(script):
    assert set(complete(script, '""')) >= set(COMMANDS)
    assert complete(script, "eva") == ["evaluate"]
    assert set(complete(script, "evaluate", "--bertscore_")) == {"--bertscore_model", "--bertscore_layer"}
    assert "--trainer.max_epochs" in complete(script, "fit", "--trainer.max_e")
    assert complete(script, "sweep", "--dry") == ["--dry-run"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_the_options_of_every_model_and_corpus(script):
    assert "--model.coverage" in complete(script, "fit", "--model.cov")  # of PointerGenerator
    assert "--model.encoder.lora_rank" in complete(script, "fit", "--model.encoder.lora")  # of RSTformer
    assert complete(script, "test", "--data.tokenizer_") == ["--data.tokenizer_dir"]
    assert set(complete(script, "fit", "--data.corpus.tr")) == {"--data.corpus.train"}
    assert "--corpus.train" in complete(script, "corpus", "--corpus.tr")
