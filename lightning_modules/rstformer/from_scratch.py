"""A LED (Longformer encoder-decoder) without pre-training."""

from torch import nn
from transformers import LEDConfig, LEDForConditionalGeneration

from lightning_modules.rstformer.options import LEDOptions


def led_from_scratch(options: LEDOptions, vocab_size: int, dropout: float) -> LEDForConditionalGeneration:
    """Return a LED with random weights, as many encoder as decoder layers, and no dropout of attention weights.

    Linear layers, except for the tied output layer, are initialized with the standard deviation `init_std`, embeddings
    with 0.02 as in LED. Raises a `ValueError` if the window is odd, or the width is not a multiple of the heads.
    """
    if options.window < 2 or options.window % 2:
        raise ValueError(f"model.encoder.window {options.window}: tokens to both sides together, even and at least 2")
    if options.hidden_size % options.heads:
        raise ValueError(f"model.encoder.hidden_size {options.hidden_size} does not divide into {options.heads} heads")
    config = LEDConfig(
        vocab_size=vocab_size,
        d_model=options.hidden_size,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        encoder_attention_heads=options.heads,
        decoder_attention_heads=options.heads,
        encoder_ffn_dim=options.inner_size,
        decoder_ffn_dim=options.inner_size,
        max_encoder_position_embeddings=options.positions,
        max_decoder_position_embeddings=options.target_positions,
        attention_window=[options.window] * options.layers,  # both sides together
        dropout=dropout,
        attention_dropout=0.0,  # the fused kernel cannot drop weights
    )
    led = LEDForConditionalGeneration(config)
    for module in led.modules():
        if isinstance(module, nn.Linear) and module is not led.lm_head:  # the head's weight is the embedding
            nn.init.normal_(module.weight, std=options.init_std)  # LED's 0.02 suits its width of 1,024
    return led
