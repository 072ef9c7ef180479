"""Help of the command, and its completion in a real shell."""

import inspect
import shutil
import subprocess

import pytest
from conftest import write

import lightning_modules
from precis.config.command_table import COMMANDS


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_and_the_options_of_every_model_and_corpus(precis, tmp_path):
    script = write(tmp_path / "precis.bash", precis("completion", "bash").succeeded().out)

    def complete(*words: str) -> list[str]:
        line = (
            f"source {script}; COMP_WORDS=(precis {' '.join(words)}); COMP_CWORD={len(words)}; "
            f"_shtab_precis precis '{words[-1]}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    assert set(complete('""')) >= set(COMMANDS)
    assert complete("eva") == ["evaluate"]
    assert set(complete("evaluate", "--bertscore_")) == {"--bertscore_model", "--bertscore_layer"}
    assert "--trainer.max_epochs" in complete("fit", "--trainer.max_e")
    assert complete("sweep", "--dry") == ["--dry-run"]
    assert "--model.coverage" in complete("fit", "--model.cov")  # of PointerGenerator
    assert "--model.encoder.lora_rank" in complete("fit", "--model.encoder.lora")  # of RSTformer
    assert complete("test", "--data.tokenizer_") == ["--data.tokenizer_dir"]
    assert set(complete("fit", "--data.corpus.tr")) == {"--data.corpus.train"}
    assert "--corpus.train" in complete("corpus", "--corpus.tr")


def test_help_lists_every_command_once_under_its_group_and_begins_with_an_example(precis):
    lines = precis("--help").out.splitlines()
    groups = ("train", "use", "evaluate", "launch", "discourse", "installation", "shell")
    headings = [line for line in lines if line in groups]
    assert headings == list(dict.fromkeys(command.group for command in COMMANDS.values()))
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(COMMANDS)
    for command in ("evaluate", "compare", "sweep"):
        assert precis(command, "--help").succeeded().out.startswith(f"example: {COMMANDS[command].example}\n")
        assert COMMANDS[command].example.startswith(f"precis {command} ")


def test_models_have_at_most_fifteen_arguments():
    models = {name: getattr(lightning_modules, name) for name in lightning_modules.__all__}
    assert {name for name, model in models.items() if len(inspect.signature(model).parameters) > 15} == set()


def test_the_help_of_a_model_documents_the_fields_of_its_groups(precis):
    help_text = " ".join(precis("fit", "--model.help", "RSTformer").out.split())
    assert "--model.encoder.window WINDOW Size of the attention window, both sides together; even." in help_text
    assert "--model.injection.formula" in help_text and "--model.optimizer.lr LR Peak learning rate" in help_text
