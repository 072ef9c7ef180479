from pathlib import Path

import pytest
import torch
from conftest import write_lines
from safetensors.torch import load_file

from experiments.studies.parser_training.segmenter import main

pytestmark = pytest.mark.integration

CONFIGS = Path(__file__).parents[3] / "experiments" / "studies" / "parser_training" / "segmenters"


@pytest.fixture
def treebank(tmp_path) -> str:
    text = "The otter slept because it rained. A heron left when it was late. It sang."
    edus, sentences = [[0, 15], [16, 34], [35, 47], [48, 65], [66, 74]], [[0, 34], [35, 65], [66, 74]]
    rows = [{"id": f"d{n}", "text": text, "edus": edus, "sentences": sentences, "genre": "news"} for n in range(6)]
    return str(write_lines(tmp_path / "gum.jsonl", rows))


@pytest.mark.parametrize("bits", [16, 8])
def test_a_segmenter_is_trained_kept_and_scored(bits, treebank, tmp_path, capsys):
    out = tmp_path / "segmenter"
    settings = f"data.train={treebank} data.val={treebank} data.batch_size=2 out={out} bits={bits}"
    settings += " model.projection=8 model.hidden_size=8 model.dropout=0 model.optimizer.lr=0.02"
    settings += " trainer.accelerator=cpu trainer.max_epochs=10 trainer.logger=false trainer.enable_checkpointing=false"
    main(["fit", *(f"--{setting}" for setting in settings.split())])
    capsys.readouterr()
    assert (torch.int8 in {value.dtype for value in load_file(out / "model.safetensors").values()}) == (bits == 8)
    main(["score", str(out), treebank])
    lines = capsys.readouterr().out.splitlines()
    assert "6 documents" in lines[0] and "inner_f1" in lines[0]
    assert lines[2].startswith("| gold sentences | 100.0 |") and lines[2].endswith("| 100.0 to 100.0 |")
    assert lines[3].startswith("| own sentences |")
    assert lines[-1] == "F1 by genre, gold sentences: news 100.0"


@pytest.mark.parametrize(("name", "encoder"), [("minilm", "minilm"), ("small", "small")])
def test_the_configs_are_accepted(name, encoder, treebank, tmp_path, capsys):
    config = f"--config={CONFIGS / name}.yaml"
    arguments = ["fit", config, f"--data.train={treebank}", f"--data.val={treebank}", f"--out={tmp_path}"]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--print_config"])
    assert end.value.code == 0 and f"checkpoint: {encoder}" in capsys.readouterr().out
