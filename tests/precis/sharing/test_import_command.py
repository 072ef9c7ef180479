import os
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
import released
import torch
from torch import nn

from datamodules.corpora.texts import Texts
from lightning_modules.summarizer import Samples
from precis.runs.run_folder import load_run

SENTENCES = ["A storm hit the coast.", "Boats sank in the harbour.", "Ships waited outside for two long days."]


@pytest.fixture
def encoder(tmp_path):
    return released.write_encoder(tmp_path / "encoder")


def imported(precis, tmp_path: Path, content: object) -> Path:
    torch.save(content, tmp_path / "released.pt")
    options = ("--out", tmp_path / "run", "--encoder", tmp_path / "encoder", "--heads", "2")
    precis("import", tmp_path / "released.pt", *options).succeeded()
    return tmp_path / "run"


def batch_of(folder: Path, tmp_path: Path):
    run = load_run(folder, corpus=Texts([("one", " ".join(SENTENCES))]), cache_dir=str(tmp_path / "cache"))
    run.data.prepare_splits(["test"])
    (batch,) = run.data.test_dataloader()
    return run.model, batch


def test_an_extractive_model_scores_as_presumms(encoder, tmp_path, precis):
    state = released.extractive_state(encoder)
    folder = imported(precis, tmp_path, {"model": state, "opt": Namespace(heads=2)})
    model, batch = batch_of(folder, tmp_path)
    assert batch.sentences == [SENTENCES]
    (scores,) = model.sentence_scores(batch)
    assert scores == pytest.approx(released.extractive_scores(state, encoder, SENTENCES), abs=1e-4)
    done = precis("summarize", "--checkpoint", folder, " ".join(SENTENCES), "--sentences", "1").succeeded()
    assert done.out.strip() in SENTENCES


def test_an_abstractive_model_generates_as_presumms(encoder, tmp_path, precis):
    state = released.abstractive_state(encoder)
    model, batch = batch_of(imported(precis, tmp_path, {"model": state}), tmp_path)
    summary = ["a", "storm", "[unused2]", "boats", "sank", ".", "[unused1]"]
    expected = released.abstractive_log_prob(state, encoder, SENTENCES, summary)
    # here the end symbol of the tokenizer stands for PreSumm's
    ids = [released.VOCABULARY.index("[SEP]" if token == "[unused1]" else token) for token in summary]
    samples = Samples(torch.tensor([[ids]]), torch.tensor([[len(ids)]]))
    with torch.no_grad():
        torch.testing.assert_close(model.log_probs(batch, samples)[0, 0], expected, atol=1e-4, rtol=1e-4)
    model._decode = lambda *_: [[model.tokenizer.decode(ids[:5])]]
    assert model.summarize(batch)[0].sentences == ["a storm", "boats sank"]  # a sentence ends at PreSumm's mark


class Stand(nn.Module):
    """A model that is pickled whole, as MatchSum's are."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.hidden_size = 16
        self.encoder = encoder


def test_a_pickled_matchsum_is_read_without_its_class(encoder, tmp_path, precis, monkeypatch):
    proposer = imported(precis, tmp_path, released.extractive_state(encoder)).rename(tmp_path / "proposer")
    module = ModuleType("model")
    module.MatchSum = type("MatchSum", (Stand,), {"__module__": "model"})
    monkeypatch.setitem(sys.modules, "model", module)
    weights = released.other_weights(encoder)
    encoder.load_state_dict(weights, strict=False)
    torch.save(module.MatchSum(encoder), tmp_path / "released.pt")
    monkeypatch.delitem(sys.modules, "model")
    options = ("--out", tmp_path / "run", "--encoder", tmp_path / "encoder", "--scorer", proposer)
    precis("import", tmp_path / "released.pt", *options).succeeded()
    state = load_run(tmp_path / "run", cache_dir=str(tmp_path / "cache")).model.state_dict()
    for name, value in weights.items():
        if "pooler" not in name:
            torch.testing.assert_close(state[f"reader.model.{name}"], value)


class Leaves:
    """Object that calls a function when it is unpickled."""

    def __init__(self, function, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_nothing_in_a_file_is_executed(encoder, tmp_path, precis):
    mark, state = tmp_path / "executed", released.extractive_state(encoder)
    for call in ((os.system, f"touch {mark}"), (Path.touch, mark), (eval, f"open({str(mark)!r}, 'w')")):
        torch.save({"model": state, "opt": Leaves(*call)}, tmp_path / "released.pt")
        precis("import", tmp_path / "released.pt", "--out", tmp_path / "run", "--encoder", tmp_path / "encoder")
        assert not mark.exists()


@pytest.mark.parametrize("change, message", [
    ({"bert.model.embeddings.LayerNorm.bias": torch.zeros(3)}, "--encoder"),
    ({"other.weight": torch.zeros(2)}, "other.weight: not in a presumm_ext checkpoint"),
    ({"ext_layer.layer_norm.bias": None}, "network.norm.bias is absent in the file"),
    (None, "no weights in it"),
])  # fmt: skip
def test_weights_that_do_not_fit_leave_no_run(change, message, encoder, tmp_path, precis):
    state = {} if change is None else released.extractive_state(encoder) | change
    path = tmp_path / "released.pt"
    torch.save({"model": {name: value for name, value in state.items() if value is not None}}, path)
    options = ("--out", tmp_path / "run", "--encoder", tmp_path / "encoder", "--heads", "2")
    precis("import", path, *options).failed_in_one_line(message, str(path))
    assert not (tmp_path / "run").exists()
