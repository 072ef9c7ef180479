"""Names of weights in checkpoints of PreSumm and MatchSum, mapped to those of the suite."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

from datamodules.documents import UserError

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


def find_kind(weights: Mapping[str, Tensor]) -> Kind:
    """Return the kind of checkpoint that has these names.

    Raises:
        UserError: if the names are those of no known kind.
    """
    for kind, key_map in KEY_MAPS.items():
        if any(re.fullmatch(key_map.mark, name) for name in weights):
            return kind
    some = ", ".join(sorted(weights)[:3])
    raise UserError(f"the weights ({some}, ..) belong to no kind that can be imported ({', '.join(KEY_MAPS)})")


def rename(weights: Mapping[str, Tensor], kind: Kind) -> dict[str, Tensor]:
    """Return weights under the names that they have in the suite.

    Raises:
        UserError: if a name does not belong to a checkpoint of this kind.
    """
    key_map, renamed = KEY_MAPS[kind], {}
    old_prefix, new_prefix = key_map.encoder
    for name, value in weights.items():
        if any(re.fullmatch(pattern, name) for pattern in (*_DROPPED, *key_map.dropped)):
            continue
        if name.startswith(old_prefix):
            renamed[new_prefix + name.removeprefix(old_prefix)] = value
            continue
        new = name
        for pattern, replacement in (*key_map.rules, *_ATTENTION, *_FEED_FORWARD):
            new = re.sub(pattern, replacement, new)
        if new == name:
            raise UserError(f"{name}: not in a {kind} checkpoint; give one as PreSumm or MatchSum released it")
        renamed[new] = value
    return renamed


def swap_rows(table: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
    """Return a table with pairs of rows exchanged."""
    swapped = table.clone()
    for one, other in pairs:
        swapped[[one, other]] = table[[other, one]]
    return swapped
