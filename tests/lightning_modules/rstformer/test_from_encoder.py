"""A LED that starts from a BERT encoder, against Hugging Face's BERT."""

import pytest
import torch
from made_up_treebank import write_encoder
from torch import nn
from transformers import AutoModel, BertConfig, BertModel

from datamodules.corpora.files import Files
from datamodules.rstformer import RSTformerData
from experiments.led_from_encoder import main
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.rstformer.from_encoder import led_from_encoder
from lightning_modules.rstformer.led import DiscourseLED
from lightning_modules.rstformer.module import RSTformer

SIZES = {"vocab_size": 40, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 20}


def bert(layers: int = 3, **options) -> BertModel:
    """A random BERT with visible weights."""
    torch.manual_seed(1)
    config = BertConfig(**SIZES, num_hidden_layers=layers, max_position_embeddings=30, initializer_range=0.5, **options)
    return BertModel(config).eval()


@pytest.mark.parametrize("with_global", [False, True])
def test_the_encoder_computes_the_states_of_bert(with_global):
    model = bert()
    ids, mask = torch.randint(3, 40, (3, 25)), torch.ones(3, 25, dtype=torch.long)
    mask[1, 7:], mask[2, 24:] = 0, 0
    is_global = torch.zeros_like(mask)
    is_global[:, 0] = int(with_global)  # global attention starts from the local one, whose windows cover all positions
    led = DiscourseLED(led_from_encoder(model, (1, 0, 2), decoder_layers=2)).eval()
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).last_hidden_state
        states = led.encode(ids, mask, is_global).last_hidden_state
    torch.testing.assert_close(states[mask > 0], expected[mask > 0], atol=1e-3, rtol=1e-3)  # LED's LayerNorm adds 1e-5


@pytest.mark.parametrize(("decoder_layers", "of"), [(1, [2]), (2, [0, 2]), (3, [0, 1, 2])])
def test_the_decoder_without_documents_computes_the_layers_of_bert(decoder_layers, of):
    model, is_decoder = bert(), {"is_decoder": True, "bos_token_id": 1}
    causal = bert(decoder_layers, **is_decoder)
    state = model.state_dict()
    for number, source in enumerate(of):
        layer = model.encoder.layer[source].state_dict()
        state |= {f"encoder.layer.{number}.{name}": value for name, value in layer.items()}
    causal.load_state_dict({name: value for name, value in state.items() if name in causal.state_dict()})
    led = led_from_encoder(model, (1, 0, 2), decoder_layers).eval()
    for layer in led.led.decoder.layers:  # with cross-attention that adds nothing and a norm that changes nothing
        layer.encoder_attn.out_proj = nn.Linear(12, 12)
        nn.init.zeros_(layer.encoder_attn.out_proj.weight)
        nn.init.zeros_(layer.encoder_attn.out_proj.bias)
        layer.encoder_attn_layer_norm = nn.Identity()
    ids = torch.randint(3, 40, (2, 9))
    with torch.no_grad():
        expected = causal(ids).last_hidden_state
        states = led.led.decoder(ids, encoder_hidden_states=torch.randn(2, 5, 12)).last_hidden_state
    torch.testing.assert_close(states, expected, atol=1e-3, rtol=1e-3)


def test_more_decoder_layers_than_the_encoder_has():
    with pytest.raises(ValueError, match="the encoder has 3 to start from"):
        led_from_encoder(bert(), (1, 0, 2), decoder_layers=4)


def test_the_command_writes_a_checkpoint_for_model_and_data(tmp_path, corpus_files, capsys):
    encoder = write_encoder(tmp_path / "bert", ["the otter swam home ."])
    folder = tmp_path / "led"
    assert main([encoder, "--decoder_layers", "1", "--out", str(folder)]) == 0
    data = RSTformerData(Files(**corpus_files), checkpoint=str(folder), ablation="no_discourse", max_source=20,
                         cache_dir=tmp_path / "cache")  # fmt: skip
    data.prepare_splits(["test"])
    model = RSTformer(len(data.tokenizer), checkpoint=str(folder), ablation="no_discourse", frozen_encoder=True,
                      decoding=DecodingOptions(min_length=1, max_length=20))  # fmt: skip
    model.set_tokenizer(data.tokenizer)
    words = AutoModel.from_pretrained(encoder).embeddings.word_embeddings.weight
    torch.testing.assert_close(model.network.led.led.shared.weight, words)
    assert model.loss_terms(next(iter(data.test_dataloader())))["nll"].isfinite()
    assert main([encoder, "--out", str(folder)]) == 1
    assert f"{folder} exists" in capsys.readouterr().err


def test_a_frozen_encoder_stays_as_it_is(tmp_path):
    led = led_from_encoder(bert(hidden_dropout_prob=0.5), (1, 0, 2), 1)
    led.save_pretrained(tmp_path / "led")
    options = {"ablation": "no_discourse", "decoding": DecodingOptions(min_length=1, max_length=9)}
    options["checkpoint"] = str(tmp_path / "led")
    model = RSTformer(40, frozen_encoder=True, **options).train()
    ids = torch.randint(3, 40, (2, 9))
    first, second = (model.network.encode(ids).last_hidden_state for _ in range(2))
    torch.testing.assert_close(first, second)  # no dropout
    trained = {name for name, p in model.network.led.named_parameters() if p.requires_grad}
    assert trained and all(name.startswith("led.decoder.") for name in trained)
    before = {name: p.clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.network(ids, labels=ids).loss.backward()
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert changed == {f"network.led.{name}" for name in trained}
    thawed = RSTformer(40, **options).train()
    one, other = (thawed.network.encode(ids).last_hidden_state for _ in range(2))
    assert not torch.equal(one, other)
