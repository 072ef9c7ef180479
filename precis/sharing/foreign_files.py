"""Weights in checkpoints of PreSumm and MatchSum: read without executing pickled code, and renamed as in the suite."""

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor
from torch.serialization import safe_globals

from datamodules.documents import UserError
from lightning_modules.checkpoints import load_pickled

MOST_CLASSES = 200  # maximum number of classes in a pickled model: each one costs another reading of the file


class Inert:
    """Placeholder for an object of any pickled class: it has the object's attributes, and no code of the class."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return by name the weights in a file with a state dict or a pickled model; a `UserError` if there are none.

    torch reads the file with `weights_only`; for each class that it refuses to import, a subclass of `Inert` stands in.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a checkpoint that was downloaded")
    content = _load(path)
    for key in ("model", "state_dict"):  # keys of the weights in training checkpoints
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping | Inert):
            content = content[key]
    weights = dict(_named_tensors(content))
    if not weights:
        raise UserError(f"{path}: no weights in it; give a checkpoint with a state dict")
    return weights


def _load(path: Path) -> Any:
    """Return the content of a pickled file; for each class that torch refuses, add a placeholder and read again."""
    # placeholders by the full name of the class; the states of optimizers are defaultdicts, to which items are added
    stand_ins: dict[str, Any] = {"collections.defaultdict": lambda *_: {}}
    while len(stand_ins) < MOST_CLASSES:  # each class takes another reading of the file
        try:
            names = [name if "." in name else f"builtins.{name}" for name in stand_ins]  # torch says `dict`
            with safe_globals(list(zip(stand_ins.values(), names))):
                return load_pickled(path)
        except (OSError, pickle.UnpicklingError) as error:
            refused = re.search(r"Unsupported global: GLOBAL (\S+) was not an allowed global", str(error))
            if refused is None or refused[1] in stand_ins:
                reason = " ".join(str(error).split())[:200]  # torch adds advice to load without `weights_only`
                problem = f"its weights cannot be read without executing what is in it, or it is broken ({reason})"
                raise UserError(f"{path}: {problem}; {_REMEDY.format(path=path)}") from None
            stand_ins[refused[1]] = type(refused[1].rpartition(".")[2], (Inert,), {})  # a new class of this name
    raise UserError(f"{path}: more than {MOST_CLASSES} pickled classes; {_REMEDY.format(path=path)}")


_REMEDY = (
    "if you trust it, save its weights alone where it was made: "
    "python -c \"import torch; m = torch.load('{path}', map_location='cpu', weights_only=False); "
    "torch.save(m['model'] if isinstance(m, dict) else m.state_dict(), 'weights.pt')\", and import weights.pt"
)


def _named_tensors(content: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield (`prefix` + name, tensor) of a state dict, or of parameters, buffers and parts of a pickled module."""
    if isinstance(content, Inert):  # a pickled object: if it is a module, it has the parts below
        attributes = vars(content)
        for part in ("_parameters", "_buffers", "_modules"):
            yield from _named_tensors(attributes.get(part) or {}, prefix)  # {} if it is not a module
    elif isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value.detach()  # a parameter becomes a plain tensor
            elif isinstance(value, Inert):
                yield from _named_tensors(value, f"{prefix}{name}.")


Kind = Literal["presumm_ext", "presumm_abs", "matchsum"]
Rules = tuple[tuple[str, str | None], ...]

# Names of the parts of a Transformer layer. A bias of keys adds a constant to the scores of a query: softmax drops it.
_ATTENTION = (
    (r"\.linear_query\.", ".query."),
    (r"\.linear_keys\.weight", ".key.weight"),
    (r"\.linear_values\.", ".value."),
    (r"\.final_linear\.", ".output."),
)
_FEED_FORWARD = (
    (r"\.feed_forward\.w_1\.", ".feed_forward.inner."),
    (r"\.feed_forward\.w_2\.", ".feed_forward.outer."),
    (r"\.feed_forward\.layer_norm\.", ".around_feed_forward.norm."),
)
_BUFFERS = (r".*pos_emb\.pe", r".*\.(position_ids|token_type_ids|mask)")
_DROPPED = (*_BUFFERS, r".*\.linear_keys\.bias", r".*pooler\..*")


class KeyMap(NamedTuple):
    """Map from the names of weights in a kind of checkpoint to names in the suite."""

    mark: str  # pattern of a name that only this kind has
    encoder: tuple[str, str]  # prefix of the encoder's names in the checkpoint, and in the suite
    rules: Rules  # patterns and replacements of other names, applied in order
    dropped: tuple[str, ...] = ()  # patterns of weights that the suite's model does not have, besides `_DROPPED`


KEY_MAPS: dict[Kind, KeyMap] = {
    "presumm_ext": KeyMap(
        r"ext_layer\.wo\.weight",
        ("bert.model.", "network.reader.model."),
        (
            (r"^ext_layer\.transformer_inter\.(\d+)\.layer_norm\.", r"network.layers.\1.around_attention.norm."),
            (r"^ext_layer\.transformer_inter\.(\d+)\.self_attn\.", r"network.layers.\1.attention."),
            (r"^ext_layer\.transformer_inter\.", "network.layers."),
            (r"^ext_layer\.layer_norm\.", "network.norm."),
            (r"^ext_layer\.wo\.", "network.scorer.linear."),
        ),
        (r"ext_layer\.transformer_inter\.0\.layer_norm\..*",),  # PreSumm's first layer does not use it
    ),
    "presumm_abs": KeyMap(
        r"decoder\.transformer_layers\.0\.context_attn\.final_linear\.weight",
        ("bert.model.", "reader.model."),
        (
            (r"^decoder\.embeddings\.weight", "decoder.embedding.weight"),
            (r"^decoder\.transformer_layers\.(\d+)\.layer_norm_1\.", r"decoder.decoder.\1.around_attention.norm."),
            (r"^decoder\.transformer_layers\.(\d+)\.layer_norm_2\.", r"decoder.decoder.\1.around_cross.norm."),
            (r"^decoder\.transformer_layers\.(\d+)\.self_attn\.", r"decoder.decoder.\1.attention."),
            (r"^decoder\.transformer_layers\.(\d+)\.context_attn\.", r"decoder.decoder.\1.cross_attention."),
            (r"^decoder\.transformer_layers\.", "decoder.decoder."),
            (r"^decoder\.layer_norm\.", "decoder.decoder_norm."),
            (r"^generator\.0\.bias", "decoder.output_bias"),
        ),
        (r"generator\.0\.weight",),  # tied to the embedding
    ),
    "matchsum": KeyMap(r"encoder\.embeddings\.word_embeddings\.weight", ("encoder.", "reader.model."), ()),
}


def find_kind(weights: Mapping[str, Tensor], path: Path) -> Kind:
    """Return the kind of checkpoint that the weights of a file are from; a `UserError` if there is no such kind."""
    for kind, key_map in KEY_MAPS.items():
        if any(re.fullmatch(key_map.mark, name) for name in weights):  # mark: pattern of a name that only it has
            return kind
    examples = ", ".join(sorted(weights)[:3])
    kinds = ", ".join(KEY_MAPS)
    raise UserError(f"{path}: the weights ({examples}, ..) belong to no kind that can be imported ({kinds})")


def rename(weights: Mapping[str, Tensor], kind: Kind, path: Path) -> dict[str, Tensor]:
    """Return a file's weights under their names in the suite; a `UserError` for a name that is not of this `kind`."""
    key_map = KEY_MAPS[kind]
    renamed: dict[str, Tensor] = {}
    old_prefix, new_prefix = key_map.encoder
    for name, value in weights.items():
        if any(re.fullmatch(pattern, name) for pattern in (*_DROPPED, *key_map.dropped)):
            continue  # a buffer, or a weight without an effect, such as a bias of attention keys, which softmax cancels
        if name.startswith(old_prefix):  # the suite has the same BERT: only the prefix differs
            renamed[new_prefix + name.removeprefix(old_prefix)] = value
            continue
        new = name
        for pattern, replacement in (*key_map.rules, *_ATTENTION, *_FEED_FORWARD):  # each rule renames one part
            new = re.sub(pattern, replacement, new)
        if new == name:  # no rule knows it
            raise UserError(f"{path}: {name}: not in a {kind} checkpoint; give one as PreSumm or MatchSum released it")
        renamed[new] = value
    return renamed
