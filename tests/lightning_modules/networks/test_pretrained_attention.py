import pytest
import torch
from transformers import AutoModel, BartConfig, BertConfig, DistilBertConfig, MPNetConfig, MPNetModel, RobertaConfig

from lightning_modules.networks.passages import Reader
from lightning_modules.networks.pretrained_attention import NAME, use_dropout_attention

SIZES = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
CONFIGS = [
    BertConfig(**SIZES),
    RobertaConfig(**SIZES, pad_token_id=1),
    DistilBertConfig(vocab_size=30, dim=8, n_layers=2, n_heads=2, hidden_dim=16),
    BartConfig(
        vocab_size=30, d_model=8, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    ),
]  # fmt: skip
IDS = torch.randint(3, 30, (2, 7), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(7) < torch.tensor([7, 4])[:, None]


@pytest.fixture(params=CONFIGS, ids=lambda config: config.model_type)
def folder(request, tmp_path):
    torch.manual_seed(0)
    AutoModel.from_config(request.param).save_pretrained(tmp_path)
    return str(tmp_path)


def passes(reader: Reader) -> list[torch.Tensor]:
    states = reader(IDS, MASK)[MASK]
    parameters = [parameter for parameter in reader.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad((states**3).sum(), parameters, allow_unused=True)
    return [states, *(gradient for gradient in gradients if gradient is not None)]


def test_training_with_a_vanishing_dropout_equals_pytorch_s_attention(folder):
    ours = Reader.pretrained(folder, dropout=0.0, attention_dropout=1e-9)
    plain = Reader.pretrained(folder, dropout=0.0, attention_dropout=0.0)
    plain.model.set_attn_implementation("sdpa")
    assert ours.model.config._attn_implementation == NAME and ours.training
    torch.testing.assert_close(passes(ours), passes(plain), rtol=1e-4, atol=1e-5)


def test_dropout_changes_states_in_training_alone_and_a_saved_model_does_not_name_our_attention(folder, tmp_path):
    reader = Reader.pretrained(folder, dropout=0.0, attention_dropout=0.5)
    assert not torch.equal(reader(IDS, MASK), reader(IDS, MASK))
    reader.eval()
    assert torch.equal(reader(IDS, MASK), reader(IDS, MASK))
    reader.model.save_pretrained(tmp_path / "saved")
    assert NAME not in (tmp_path / "saved" / "config.json").read_text()
    AutoModel.from_pretrained(tmp_path / "saved")


def test_attention_of_mpnet_equals_that_of_transformers():
    torch.manual_seed(0)
    config = MPNetConfig(**SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    plain, ours = MPNetModel(config).double(), MPNetModel(config).double()
    ours.load_state_dict(plain.state_dict())
    use_dropout_attention(ours)
    results = []
    for model in (plain, ours):
        states = model(IDS, MASK.long()).last_hidden_state[MASK]
        results.append([states, *torch.autograd.grad((states**3).sum(), list(model.encoder.parameters()))])
    torch.testing.assert_close(*results)
    assert torch.equal(*[model(IDS, output_attentions=True).attentions[0] for model in (plain, ours)])
