"""Checkpoints in the layouts of PreSumm and MatchSum with random weights, and what their models compute."""

from itertools import product
from pathlib import Path

import torch
from tiny_models import write_bert
from torch import Tensor
from torch.nn import functional as F
from transformers import BertModel

TEXT = "a storm hit the coast boats sank nobody had slept ships waited outside for two long days . in harbour"
UNUSED = ["[unused0]", "[unused1]", "[unused2]"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *UNUSED, *TEXT.split()]
SIZE, HEADS, INNER, POSITIONS, LAYERS = 16, 2, 24, 40, 2


def write_encoder(folder: Path) -> BertModel:
    """A tiny BERT with the symbols of bert-base-uncased."""
    write_bert(folder, VOCABULARY[5:], num_hidden_layers=2, intermediate_size=32, max_position_embeddings=POSITIONS)
    return BertModel.from_pretrained(folder).eval()


def other_weights(encoder: BertModel) -> dict[str, Tensor]:
    """The weights of a BERT that was trained further."""
    generator = torch.Generator().manual_seed(1)
    state = {name: value.clone() for name, value in encoder.state_dict().items()}
    return {n: v + 0.1 * torch.randn(v.shape, generator=generator) for n, v in state.items() if v.is_floating_point()}


def _linear(state: dict[str, Tensor], name: str, rows: int, columns: int) -> None:
    state[f"{name}.weight"], state[f"{name}.bias"] = torch.randn(rows, columns) / columns**0.5, torch.randn(rows) / 5


def _norm(state: dict[str, Tensor], name: str) -> None:
    state[f"{name}.weight"], state[f"{name}.bias"] = 1 + torch.randn(SIZE) / 5, torch.randn(SIZE) / 5


def _layer(state: dict[str, Tensor], name: str, attentions: list[str], norms: list[str]) -> None:
    """Add the weights of a transformer layer."""
    for attention, part in product(attentions, ("linear_keys", "linear_values", "linear_query", "final_linear")):
        _linear(state, f"{name}.{attention}.{part}", SIZE, SIZE)
    _linear(state, f"{name}.feed_forward.w_1", INNER, SIZE)
    _linear(state, f"{name}.feed_forward.w_2", SIZE, INNER)
    for part in (*norms, "feed_forward.layer_norm"):
        _norm(state, f"{name}.{part}")


def extractive_state(encoder: BertModel) -> dict[str, Tensor]:
    """The state dict of PreSumm's ExtSummarizer."""
    torch.manual_seed(2)
    state = {f"bert.model.{name}": value for name, value in other_weights(encoder).items()}
    state["ext_layer.pos_emb.pe"] = torch.zeros(1, 50, SIZE)
    for layer in range(LAYERS):
        _layer(state, f"ext_layer.transformer_inter.{layer}", ["self_attn"], ["layer_norm"])
    _norm(state, "ext_layer.layer_norm")
    _linear(state, "ext_layer.wo", 1, SIZE)
    return state


def abstractive_state(encoder: BertModel) -> dict[str, Tensor]:
    """The state dict of PreSumm's AbsSummarizer."""
    torch.manual_seed(3)
    state = {f"bert.model.{name}": value for name, value in other_weights(encoder).items()}
    state["decoder.embeddings.weight"] = torch.randn(len(VOCABULARY), SIZE) / 4
    state["decoder.pos_emb.pe"] = torch.zeros(1, 50, SIZE)
    for layer in range(LAYERS):
        name = f"decoder.transformer_layers.{layer}"
        _layer(state, name, ["self_attn", "context_attn"], ["layer_norm_1", "layer_norm_2"])
        state[f"{name}.mask"] = torch.zeros(1, 50, 50, dtype=torch.uint8)
    _norm(state, "decoder.layer_norm")
    state["generator.0.weight"] = state["decoder.embeddings.weight"]
    state["generator.0.bias"] = torch.randn(len(VOCABULARY)) / 4
    return state


def positions(length: int) -> Tensor:
    table = torch.zeros(length, SIZE)
    for place in range(length):
        for i in range(0, SIZE, 2):
            angle = torch.tensor(place / 10_000 ** (i / SIZE))
            table[place, i], table[place, i + 1] = angle.sin(), angle.cos()
    return table


def linear(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def norm(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (SIZE,), state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-6)


def attend(state: dict[str, Tensor], name: str, x: Tensor, memory: Tensor, causal: bool = False) -> Tensor:
    query, keys = linear(state, f"{name}.linear_query", x), linear(state, f"{name}.linear_keys", memory)
    values, mixed, width = linear(state, f"{name}.linear_values", memory), [], SIZE // HEADS
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        scores = query[:, part] @ keys[:, part].T / width**0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
        mixed.append(scores.softmax(-1) @ values[:, part])
    return linear(state, f"{name}.final_linear", torch.cat(mixed, -1))


def feed_forward(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    inner = F.gelu(linear(state, f"{name}.w_1", norm(state, f"{name}.layer_norm", x)), approximate="tanh")
    return x + linear(state, f"{name}.w_2", inner)


def encode(state: dict[str, Tensor], encoder: BertModel, sentences: list[str]) -> tuple[Tensor, list[int]]:
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


def extractive_scores(state: dict[str, Tensor], encoder: BertModel, sentences: list[str]) -> list[float]:
    """Probabilities of the sentences by PreSumm's extractive model; its first layer does not normalize its input."""
    states, heads = encode(state, encoder, sentences)
    x = states[heads] + positions(len(heads))
    for layer in range(LAYERS):
        name = f"ext_layer.transformer_inter.{layer}"
        y = norm(state, f"{name}.layer_norm", x) if layer else x
        x = feed_forward(state, f"{name}.feed_forward", x + attend(state, f"{name}.self_attn", y, y))
    return linear(state, "ext_layer.wo", norm(state, "ext_layer.layer_norm", x)).sigmoid().squeeze(-1).tolist()


def abstractive_log_prob(
    state: dict[str, Tensor], encoder: BertModel, sentences: list[str], summary: list[str]
) -> Tensor:
    """Log-probabilities of the tokens of a summary after [unused0] by PreSumm's abstractive model, [T]."""
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
