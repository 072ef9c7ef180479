"""BERT encoder in plain PyTorch, for commands that answer at once: importing `transformers` takes seconds."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lightning_modules.networks.passages import Reader
from lightning_modules.networks.transformer import EncoderLayer

# Names of the modules of `EncoderLayer`, and of the same modules in BERT checkpoints of Hugging Face
_STORED_NAMES = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",  # without its bias, which does not change attention
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "around_attention.norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "around_feed_forward.norm": "output.LayerNorm",
}


class BertReader(Reader):
    """Frozen BERT encoder, loaded from a folder; a `Reader` whose states are those of `Reader.pretrained` in eval mode.

    The folder has config.json and model.safetensors of a BERT with absolute positions and GELU.
    """

    def __init__(self, folder: str | Path) -> None:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        size, heads, inner = (config[name] for name in ("hidden_size", "num_attention_heads", "intermediate_size"))
        no_model = nn.Module()  # a `Reader` has a Hugging Face model; here `forward` uses the layers below instead
        super().__init__(no_model, size, config["max_position_embeddings"], config["type_vocab_size"])
        weights = load_file(Path(folder) / "model.safetensors")
        with torch.device("meta"):  # without initial values, which take time and are replaced below
            self.layers = nn.ModuleList(
                EncoderLayer(size, heads, inner, norm="post", activation="gelu")
                for _ in range(config["num_hidden_layers"])
            )
            self.norm = nn.LayerNorm(size)
        _assign_weights(self.norm, weights, {"": "embeddings.LayerNorm"})  # "" for the norm itself
        for number, layer in enumerate(self.layers):
            names = {part: f"encoder.layer.{number}.{name}" for part, name in _STORED_NAMES.items()}
            _assign_weights(layer, weights, names)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config["layer_norm_eps"]  # not among the weights
        self.words = weights["embeddings.word_embeddings.weight"]  # [vocabulary, H]
        self.positions = weights["embeddings.position_embeddings.weight"]  # [maximum length, H]
        self.kinds = weights["embeddings.token_type_embeddings.weight"]  # of segment types, [types, H]
        self.eval().requires_grad_(False)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Encode ids [B, T] -> [B, T, H]; mask, True at tokens, [B, T]; segment types [B, T], None for type 0."""
        kinds = self.kinds[0] if segments is None else self.kinds[segments]
        x = self.norm(self.words[ids] + self.positions[: ids.shape[1]] + kinds)                # [B, T, H]
        for layer in self.layers:
            x = layer(x, mask[:, None, None])
        return x


def _assign_weights(module: nn.Module, weights: dict[str, Tensor], names: dict[str, str]) -> None:
    """Assign tensors of a file to a module, without a copy; `names` maps each submodule to its name in the file."""
    state = {}
    for name in module.state_dict():
        part, _, kind = name.rpartition(".")  # "attention.query.weight": submodule `attention.query`, kind `weight`
        state[name] = weights[f"{names[part]}.{kind}"]
    module.load_state_dict(state, assign=True)
