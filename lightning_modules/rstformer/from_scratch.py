"""A LED (Longformer encoder-decoder) without pre-training."""

from torch import nn
from transformers import LEDConfig, LEDForConditionalGeneration


def led_from_scratch(
    *,
    vocab_size: int,
    hidden_size: int,
    heads: int,
    layers: int,
    inner_size: int,
    window: int,
    positions: int,
    target_positions: int,
    dropout: float,
    init_std: float,
) -> LEDForConditionalGeneration:
    """Return a LED with random weights, as many encoder as decoder layers, and no dropout of attention weights.

    Linear layers, except for the tied output layer, are initialized with a standard deviation of `init_std`, embeddings
    with LED's 0.02. The other arguments are those of `RSTformer`.

    Raises:
        ValueError: if the window is odd, or the width is not a multiple of the heads.
    """
    if window < 2 or window % 2:
        raise ValueError(f"model.window {window}: tokens to both sides together, so even and at least 2")
    if hidden_size % heads:
        raise ValueError(f"model.hidden_size {hidden_size} does not divide into {heads} heads")
    config = LEDConfig(
        vocab_size=vocab_size,
        d_model=hidden_size,
        num_hidden_layers=layers,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner_size,
        decoder_ffn_dim=inner_size,
        max_encoder_position_embeddings=positions,
        max_decoder_position_embeddings=target_positions,
        attention_window=[window] * layers,
        dropout=dropout,
        attention_dropout=0.0,
    )
    led = LEDForConditionalGeneration(config)
    for module in led.modules():
        if isinstance(module, nn.Linear) and module is not led.lm_head:
            nn.init.normal_(module.weight, std=init_std)
    return led
