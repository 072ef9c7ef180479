"""Checkpoints in the layouts of PreSumm and MatchSum with random weights, and what their models compute."""

import os
import sys
from argparse import Namespace
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tiny_models import write_bert
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertModel

from datamodules.corpora.texts import Texts
from lightning_modules.summarizer import Samples
from precis.runs.run_folder import load_run

TEXT = "a storm hit the coast boats sank nobody had slept ships waited outside for two long days . in harbour"
UNUSED = ["[unused0]", "[unused1]", "[unused2]"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *UNUSED, *TEXT.split()]
SIZE, HEADS, INNER, LAYERS = 16, 2, 24, 2
State = dict[str, Tensor]


def other_weights(encoder: BertModel) -> State:
    generator = torch.Generator().manual_seed(1)
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    return {n: v + 0.1 * torch.randn(v.shape, generator=generator) for n, v in state.items() if v.is_floating_point()}


def _add(state: State, name: str, *shape: int) -> None:
    """Add the weight and bias of a linear layer, or of a normalization."""
    state[f"{name}.weight"] = torch.randn(shape) / shape[-1] ** 0.5 + (len(shape) == 1)
    state[f"{name}.bias"] = torch.randn(shape[0]) / 5


def _add_layer(state: State, name: str, attentions: list[str], norms: list[str]) -> None:
    for attention, part in product(attentions, ("linear_keys", "linear_values", "linear_query", "final_linear")):
        _add(state, f"{name}.{attention}.{part}", SIZE, SIZE)
    _add(state, f"{name}.feed_forward.w_1", INNER, SIZE)
    _add(state, f"{name}.feed_forward.w_2", SIZE, INNER)
    for part in (*norms, "feed_forward.layer_norm"):
        _add(state, f"{name}.{part}", SIZE)


def extractive_state(encoder: BertModel) -> State:
    """The state dict of PreSumm's ExtSummarizer."""
    torch.manual_seed(2)
    state = {f"bert.model.{name}": value for name, value in other_weights(encoder).items()}
    state["ext_layer.pos_emb.pe"] = torch.zeros(1, 50, SIZE)
    for layer in range(LAYERS):
        _add_layer(state, f"ext_layer.transformer_inter.{layer}", ["self_attn"], ["layer_norm"])
    _add(state, "ext_layer.layer_norm", SIZE)
    _add(state, "ext_layer.wo", 1, SIZE)
    return state


def abstractive_state(encoder: BertModel) -> State:
    """The state dict of PreSumm's AbsSummarizer."""
    torch.manual_seed(3)
    state = {f"bert.model.{name}": value for name, value in other_weights(encoder).items()}
    state["decoder.embeddings.weight"] = torch.randn(len(VOCABULARY), SIZE) / 4
    state["decoder.pos_emb.pe"] = torch.zeros(1, 50, SIZE)
    for layer in range(LAYERS):
        name = f"decoder.transformer_layers.{layer}"
        _add_layer(state, name, ["self_attn", "context_attn"], ["layer_norm_1", "layer_norm_2"])
        state[f"{name}.mask"] = torch.zeros(1, 50, 50, dtype=torch.uint8)
    _add(state, "decoder.layer_norm", SIZE)
    state["generator.0.weight"] = state["decoder.embeddings.weight"]
    state["generator.0.bias"] = torch.randn(len(VOCABULARY)) / 4
    return state


def positions(length: int) -> Tensor:
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, SIZE, 2) / SIZE)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (SIZE,), state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-6)


def attend(state: State, name: str, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
    projected = [linear(state, f"{name}.linear_query", x)]
    projected += [linear(state, f"{name}.linear_{part}", memory) for part in ("keys", "values")]
    heads = [each.unflatten(-1, (HEADS, -1)).transpose(0, 1) for each in projected]
    mixed = F.scaled_dot_product_attention(*heads, is_causal=causal)
    return linear(state, f"{name}.final_linear", mixed.transpose(0, 1).flatten(1))


def feed_forward(state: State, name: str, x: Tensor) -> Tensor:
    inner = F.gelu(linear(state, f"{name}.w_1", norm(state, f"{name}.layer_norm", x)), approximate="tanh")
    return x + linear(state, f"{name}.w_2", inner)


def encode(state: State, encoder: BertModel, sentences: list[str]) -> tuple[Tensor, list[int]]:
    """States of the tokens [T, D] of [CLS] .. [SEP] for each sentence, and the places of [CLS]."""
    weights = {n.removeprefix("bert.model."): v for n, v in state.items() if n.startswith("bert.model.")}
    encoder.load_state_dict(weights, strict=False)
    ids, segments, heads = [], [], []
    for number, sentence in enumerate(sentences):
        tokens = ["[CLS]", *sentence.lower().replace(".", " .").split(), "[SEP]"]
        heads.append(len(ids))
        ids += [VOCABULARY.index(token) for token in tokens]
        segments += [number % 2] * len(tokens)
    with torch.no_grad():
        out = encoder(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).last_hidden_state
    return out[0], heads


def extractive_scores(state: State, encoder: BertModel, sentences: list[str]) -> list[float]:
    """Probabilities of the sentences by PreSumm's extractive model; its first layer does not normalize its input."""
    states, heads = encode(state, encoder, sentences)
    x = states[heads] + positions(len(heads))
    for layer in range(LAYERS):
        name = f"ext_layer.transformer_inter.{layer}"
        y = norm(state, f"{name}.layer_norm", x) if layer else x
        x = feed_forward(state, f"{name}.feed_forward", x + attend(state, f"{name}.self_attn", y, y))
    return linear(state, "ext_layer.wo", norm(state, "ext_layer.layer_norm", x)).sigmoid().squeeze(-1).tolist()


def abstractive_log_prob(state: State, encoder: BertModel, sentences: list[str], summary: list[str]) -> Tensor:
    memory, _ = encode(state, encoder, sentences)
    ids = [VOCABULARY.index(token) for token in ["[unused0]", *summary]]
    x = state["decoder.embeddings.weight"][ids[:-1]] * SIZE**0.5 + positions(len(ids) - 1)
    for layer in range(LAYERS):
        name = f"decoder.transformer_layers.{layer}"
        y = norm(state, f"{name}.layer_norm_1", x)
        x = x + attend(state, f"{name}.self_attn", y, y, causal=True)
        x = x + attend(state, f"{name}.context_attn", norm(state, f"{name}.layer_norm_2", x), memory)
        x = feed_forward(state, f"{name}.feed_forward", x)
    logits = linear(state, "generator.0", norm(state, "decoder.layer_norm", x))
    return logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]


SENTENCES = ["A storm hit the coast.", "Boats sank in the harbour.", "Ships waited outside for two long days."]


@pytest.fixture
def encoder(tmp_path):
    """A tiny BERT with the symbols of bert-base-uncased."""
    sizes = {"num_hidden_layers": 2, "intermediate_size": 32, "max_position_embeddings": 40}
    return BertModel.from_pretrained(write_bert(tmp_path / "encoder", VOCABULARY[5:], **sizes)).eval()


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


def test_an_extractive_model_scores_as_presumms_and_nothing_in_a_file_is_executed(encoder, tmp_path, precis):
    state = extractive_state(encoder)
    optimizer = torch.optim.Adam([torch.ones(2)])
    optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] = 1  # PreSumm's files have the state of training
    folder = imported(precis, tmp_path, {"model": state, "opt": Namespace(heads=2), "optim": [optimizer]})
    model, batch = batch_of(folder, tmp_path)
    assert batch.sentences == [SENTENCES]
    assert model.sentence_scores(batch) == [pytest.approx(extractive_scores(state, encoder, SENTENCES), abs=1e-4)]
    done = precis("summarize", "--checkpoint", folder, " ".join(SENTENCES), "--sentences", "1").succeeded()
    assert done.out.strip() in SENTENCES
    mark, state = tmp_path / "executed", extractive_state(encoder)
    for call in ((os.system, f"touch {mark}"), (Path.touch, mark), (eval, f"open({str(mark)!r}, 'w')")):
        torch.save({"model": state, "opt": Unpickled(*call)}, tmp_path / "released.pt")
        precis("import", tmp_path / "released.pt", "--out", tmp_path / "other", "--encoder", tmp_path / "encoder")
        assert not mark.exists()


def test_an_abstractive_model_generates_as_presumms_and_weights_that_do_not_fit_leave_no_run(encoder, tmp_path, precis):
    state = abstractive_state(encoder)
    model, batch = batch_of(imported(precis, tmp_path, {"model": state}), tmp_path)
    summary = ["a", "storm", "[unused2]", "boats", "sank", ".", "[unused1]"]
    expected = abstractive_log_prob(state, encoder, SENTENCES, summary)
    # here the end symbol of the tokenizer stands for PreSumm's
    ids = [VOCABULARY.index("[SEP]" if token == "[unused1]" else token) for token in summary]
    samples = Samples(torch.tensor([[ids]]), torch.tensor([[len(ids)]]))
    with torch.no_grad():
        torch.testing.assert_close(model.log_probs(batch, samples)[0, 0], expected, atol=1e-4, rtol=1e-4)
    model._decode = lambda *_: [[model.tokenizer.decode(ids[:5])]]
    assert model.summarize(batch)[0].sentences == ["a storm", "boats sank"]  # a sentence ends at PreSumm's mark
    state, path = extractive_state(encoder), tmp_path / "released.pt"
    without = {name: value for name, value in state.items() if name != "ext_layer.layer_norm.bias"}
    for weights, message in (
        (state | {"bert.model.embeddings.LayerNorm.bias": torch.zeros(3)}, "--encoder"),
        (state | {"other.weight": torch.zeros(2)}, "other.weight: not in a presumm_ext checkpoint"),
        (without, "network.norm.bias is absent in the file"),
        ({}, "no weights in it"),
    ):
        torch.save({"model": weights}, path)
        options = ("--out", tmp_path / "other", "--encoder", tmp_path / "encoder", "--heads", "2")
        precis("import", path, *options).failed_in_one_line(message, str(path))
        assert not (tmp_path / "other").exists()


class Stand(nn.Module):
    """A model that is pickled whole, as MatchSum's are."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.hidden_size = 16
        self.encoder = encoder


def test_a_pickled_matchsum_is_read_without_its_class(encoder, tmp_path, precis, monkeypatch):
    proposer = imported(precis, tmp_path, extractive_state(encoder)).rename(tmp_path / "proposer")
    module = ModuleType("model")
    module.MatchSum = type("MatchSum", (Stand,), {"__module__": "model"})
    monkeypatch.setitem(sys.modules, "model", module)
    weights = other_weights(encoder)
    encoder.load_state_dict(weights, strict=False)
    torch.save(module.MatchSum(encoder), tmp_path / "released.pt")
    monkeypatch.delitem(sys.modules, "model")
    options = ("--out", tmp_path / "run", "--encoder", tmp_path / "encoder", "--scorer", proposer)
    precis("import", tmp_path / "released.pt", *options).succeeded()
    state = load_run(tmp_path / "run", cache_dir=str(tmp_path / "cache")).model.state_dict()
    for name, value in weights.items():
        if "pooler" not in name:
            torch.testing.assert_close(state[f"reader.model.{name}"], value)


class Unpickled:
    def __init__(self, function, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call
