"""Training of RSTformer's decoder over an encoder that stays as it is."""

import torch
from model_options import build_model
from transformers import LEDConfig, LEDForConditionalGeneration

from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.rstformer.module import RSTformer


def test_a_frozen_encoder_stays_as_it_is(tmp_path):
    torch.manual_seed(0)
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = LEDConfig(vocab_size=40, d_model=12, encoder_ffn_dim=20, decoder_ffn_dim=20, attention_window=8,
                       max_encoder_position_embeddings=30, dropout=0.5, encoder_layerdrop=0.5, **sizes)  # fmt: skip
    LEDForConditionalGeneration(config).save_pretrained(tmp_path)
    options = {"checkpoint": str(tmp_path), "ablation": "no_discourse"}
    options["decoding"] = DecodingOptions(min_length=1, max_length=9)
    model = build_model(RSTformer, {"vocab_size": 40, "frozen": True} | options).train()
    ids = torch.randint(3, 40, (2, 9))
    first, second = (model.network.encode(ids).last_hidden_state for _ in range(2))
    torch.testing.assert_close(first, second)  # neither dropout nor dropped layers
    before = {name: weights.clone() for name, weights in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.network(ids, labels=ids).loss.backward()
    optimizer.step()
    changed = {name for name, weights in model.named_parameters() if not weights.equal(before[name])}
    assert changed == {name for name in before if name.startswith("network.led.led.decoder.")}
    trained = build_model(RSTformer, {"vocab_size": 40} | options).train()
    first, second = (trained.network.encode(ids).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)
