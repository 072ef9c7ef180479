"""BERT encoder in plain PyTorch, for commands that answer at once: importing `transformers` takes seconds."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.networks.passages import Reader

# The names of the modules below in the files of Hugging Face
_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "norm": "output.LayerNorm",
}


class BertLayer(nn.Module):
    """Self-attention and feed-forward network, each normalized after the residual connection.

    Args:
        size: H.
        heads: N.
        inner_size: width of the feed-forward network.
        eps: epsilon of the layer norms.
    """

    def __init__(self, size: int, heads: int, inner_size: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.inner, self.outer = nn.Linear(size, inner_size), nn.Linear(inner_size, size)
        self.attention_norm, self.norm = nn.LayerNorm(size, eps), nn.LayerNorm(size, eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, T, H], mask [B, 1, 1, T] -> [B, T, H]."""
        query, key, value = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, mask)                      # [B, N, T, H / N]
        x = self.attention_norm(x + self.output(mixed.transpose(1, 2).flatten(2)))
        return self.norm(x + self.outer(F.gelu(self.inner(x))))


class BertReader(Reader):
    """`Reader` of a BERT in a folder, with the states of `Reader.pretrained` in eval mode; it is not trained.

    Args:
        folder: folder with config.json and model.safetensors of a BERT with absolute positions and GELU.
    """

    def __init__(self, folder: str | Path) -> None:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        size, eps = config["hidden_size"], config["layer_norm_eps"]
        super().__init__(nn.Module(), size, config["max_position_embeddings"], config["type_vocab_size"])
        weights = load_file(Path(folder) / "model.safetensors")
        with torch.device("meta"):  # no time for initial values, which are replaced
            heads, inner = config["num_attention_heads"], config["intermediate_size"]
            self.layers = nn.ModuleList(BertLayer(size, heads, inner, eps) for _ in range(config["num_hidden_layers"]))
            self.norm = nn.LayerNorm(size, eps)
        _assign(self.norm, weights, "embeddings.LayerNorm")
        for number, layer in enumerate(self.layers):
            for name, stored in _NAMES.items():
                _assign(getattr(layer, name), weights, f"encoder.layer.{number}.{stored}")
        self.words, self.positions, self.kinds = (
            weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        self.eval().requires_grad_(False)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Encode ids [B, T] -> [B, T, H], see `Reader`."""
        kinds = self.kinds[0] if segments is None else self.kinds[segments]
        x = self.norm(self.words[ids] + self.positions[: ids.shape[1]] + kinds)
        for layer in self.layers:
            x = layer(x, mask[:, None, None])
        return x


def _assign(module: nn.Module, weights: dict[str, Tensor], name: str) -> None:
    """Give a module the weight and bias of that name, without a copy."""
    for part in ("weight", "bias"):
        setattr(module, part, nn.Parameter(weights[f"{name}.{part}"], requires_grad=False))
