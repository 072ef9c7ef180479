"""A LED that starts from a pretrained BERT encoder, as in Rothe et al. 2020 (BERT2BERT), TACL 8:264-280."""

from collections.abc import Mapping

from torch import Tensor, nn
from transformers import BertModel, LEDConfig, LEDForConditionalGeneration

# parts of a layer of BERT, and their names in the encoder and in the decoder of LED
_SELF_ATTENTION = {"attention.self.query": "q_proj", "attention.self.key": "k_proj", "attention.self.value": "v_proj"}
_FEED_FORWARD = {"intermediate.dense": "fc1", "output.dense": "fc2", "output.LayerNorm": "final_layer_norm"}


def led_from_encoder(
    encoder: BertModel, special: tuple[int, int, int], decoder_layers: int
) -> LEDForConditionalGeneration:
    """Return a LED with the encoder's weights, whose decoder is initialized from the encoder's layers.

    BERT and LED have the same layers (post-norm, learned positions), so that the LED's encoder computes the states of
    BERT for a single segment; its windows cover all positions. Global attention starts from the local one, as in
    Longformer. Layer l of L decoder layers has the self-attention and feed-forward weights of encoder layer
    floor((l + 1) N / L) - 1 of N, and its cross-attention those of that layer's self-attention. (Rothe et al.
    initialize cross-attention at random.)

    Args:
        encoder: BERT with absolute positions.
        special: ids of [CLS], [PAD] and [SEP].
        decoder_layers: number L of decoder layers, at most N.

    Raises:
        ValueError: if there are fewer encoder than decoder layers, or the positions are relative.
    """
    config = encoder.config
    if not 1 <= decoder_layers <= config.num_hidden_layers:
        raise ValueError(f"{decoder_layers} decoder layers: the encoder has {config.num_hidden_layers} to start from")
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"positions of the encoder are {config.position_embedding_type}, those of LED absolute")
    start, padding, stop = special
    led = LEDForConditionalGeneration(
        LEDConfig(
            vocab_size=config.vocab_size,
            d_model=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            encoder_layers=config.num_hidden_layers,
            decoder_layers=decoder_layers,
            encoder_attention_heads=config.num_attention_heads,
            decoder_attention_heads=config.num_attention_heads,
            encoder_ffn_dim=config.intermediate_size,
            decoder_ffn_dim=config.intermediate_size,
            max_encoder_position_embeddings=config.max_position_embeddings,
            max_decoder_position_embeddings=config.max_position_embeddings,
            attention_window=[2 * config.max_position_embeddings] * config.num_hidden_layers,
            activation_function=config.hidden_act,
            dropout=config.hidden_dropout_prob,
            attention_dropout=0.0,
            bos_token_id=start,
            pad_token_id=padding,
            eos_token_id=stop,
            decoder_start_token_id=stop,
        )
    )
    embeddings = encoder.embeddings
    led.led.shared.weight.data.copy_(embeddings.word_embeddings.weight)
    segment = embeddings.token_type_embeddings.weight[0]  # LED has no segments: that of the first is in every position
    for half in (led.led.encoder, led.led.decoder):
        half.embed_positions.weight.data.copy_(embeddings.position_embeddings.weight + segment)
        half.layernorm_embedding.load_state_dict(embeddings.LayerNorm.state_dict())
    for source, target in zip(encoder.encoder.layer, led.led.encoder.layers):
        _copy(source, target, _encoder_names())
    for number, target in enumerate(led.led.decoder.layers):
        source = encoder.encoder.layer[(number + 1) * config.num_hidden_layers // decoder_layers - 1]
        _copy(source, target, _decoder_names())
    led.tie_weights()
    return led


def _encoder_names() -> list[tuple[str, str]]:
    """Return pairs of modules of a layer of BERT and of the LED's encoder."""
    pairs = [(bert, led) for bert, led in _FEED_FORWARD.items()]
    for bert in _SELF_ATTENTION:
        name = f"self_attn.longformer_self_attn.{bert.rsplit('.', 1)[1]}"
        pairs += [(bert, name), (bert, f"{name}_global")]
    pairs += [("attention.output.dense", "self_attn.output")]
    return [*pairs, ("attention.output.LayerNorm", "self_attn_layer_norm")]


def _decoder_names() -> list[tuple[str, str]]:
    """Return pairs of modules of a layer of BERT and of the LED's decoder."""
    pairs = [(bert, led) for bert, led in _FEED_FORWARD.items()]
    for attention in ("self_attn", "encoder_attn"):
        pairs += [(bert, f"{attention}.{led}") for bert, led in _SELF_ATTENTION.items()]
        pairs += [("attention.output.dense", f"{attention}.out_proj")]
        pairs += [("attention.output.LayerNorm", f"{attention}_layer_norm")]
    return pairs


def _copy(source: nn.Module, target: nn.Module, names: list[tuple[str, str]]) -> None:
    """Copy the parameters of modules of one layer into those of another one."""
    for name, target_name in names:
        state: Mapping[str, Tensor] = source.get_submodule(name).state_dict()
        target.get_submodule(target_name).load_state_dict(state)
