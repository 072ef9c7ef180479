import copy

import pytest
import torch
from test_transformer import copy_layer
from tiny_models import random_summarizer
from torch import nn
from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

from lightning_modules.decoding.beam_search import beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.encoder_decoder import EncoderDecoder
from lightning_modules.networks.pretrained import PretrainedEncoderDecoder
from lightning_modules.networks.transformer import sinusoidal  # `test_transformer.py` has its formula

V, WORDS, B, S, K, T = 50, 47, 3, 7, 2, 5


def bert2bert() -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    part = BertConfig(vocab_size=V, max_position_embeddings=12, **sizes)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(part, part, decoder_start_token_id=2, pad_token_id=0)
    return EncoderDecoderModel(config)


def small(kind: str) -> nn.Module:
    torch.manual_seed(1)
    if kind == "ours":
        network = EncoderDecoder(V, 16, 2, 2, 3, 24, dropout=0.3)
    else:
        network = PretrainedEncoderDecoder(bert2bert() if kind == "bert2bert" else random_summarizer(kind, V, 16, 2))
    for parameter in network.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return network.eval()


@pytest.fixture
def documents():
    tokens = torch.randint(4, WORDS, (B, S), generator=torch.Generator().manual_seed(2))
    return tokens, torch.arange(S) < torch.tensor([[S], [4], [1]])


every_kind = pytest.mark.parametrize("kind", ["ours", "pegasus", "bart", "t5", "led"])


def teacher_forced(network, states, mask, inputs, target):
    return network.log_probs(states, mask, inputs, target, torch.arange(inputs.numel()), WORDS)[0].view_as(target)


@every_kind
@torch.no_grad()
def test_step_by_step_equals_all_at_once(kind, documents):
    network, (source, mask) = small(kind), documents
    inputs, target = torch.randint(4, WORDS, (2, B, K, T))
    states = network.encode(source, mask)
    spread = (states.repeat_interleave(K, 0), mask.repeat_interleave(K, 0))
    expected = teacher_forced(network, *spread, inputs.flatten(0, 1), target.flatten(0, 1)).view(B, K, T)
    state, memory = network.begin(states, mask)
    state = {name: tensor.unsqueeze(1).expand(-1, K, *tensor.shape[1:]) for name, tensor in state.items()}
    step = network.stepper(WORDS)
    for t in range(T):
        ids, log_probs, after = step(inputs[..., t], state, memory, None)
        torch.testing.assert_close(log_probs.gather(-1, target[..., t : t + 1]).squeeze(-1), expected[..., t])
        torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(B, K))
        assert ids is None and log_probs.shape[-1] == WORDS
        ids, few, _ = step(inputs[..., t], state, memory, 3)
        torch.testing.assert_close((few if ids is not None else few.topk(3).values)[..., :3], log_probs.topk(3).values)
        if ids is not None:
            torch.testing.assert_close(log_probs.gather(-1, ids), few)
        state = after


@every_kind
@torch.no_grad()
def test_padding_changes_nothing(kind, documents):
    network, (source, mask) = small(kind), documents
    inputs, target = torch.randint(4, WORDS, (2, B, T))
    whole = teacher_forced(network, network.encode(source, mask), mask, inputs, target)
    noisy = source.masked_fill(~mask, 3)
    wider, seen = torch.cat([noisy, torch.full((B, 4), 9)], 1), torch.cat([mask, torch.zeros(B, 4).bool()], 1)
    torch.testing.assert_close(teacher_forced(network, network.encode(wider, seen), seen, inputs, target), whole)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone, real = source[row : row + 1, :length], mask[row : row + 1, :length]
        states = network.encode(alone, real)
        log_probs = teacher_forced(network, states, real, inputs[row : row + 1], target[row : row + 1])
        torch.testing.assert_close(log_probs[0], whole[row])


@torch.no_grad()
def test_against_pytorchs_transformer(documents):
    ours, (source, mask) = small("ours"), documents
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 24, "dropout": 0.0, "norm_first": True, "batch_first": True}
    layers = nn.TransformerEncoderLayer(**sizes), nn.TransformerDecoderLayer(**sizes)
    encoder = nn.TransformerEncoder(layers[0], 2, norm=nn.LayerNorm(16), enable_nested_tensor=False).eval()
    decoder = nn.TransformerDecoder(layers[1], 3, norm=nn.LayerNorm(16)).eval()
    for mine, theirs in [*zip(ours.encoder, encoder.layers), *zip(ours.decoder, decoder.layers)]:
        copy_layer(mine, theirs)
    encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
    decoder.norm.load_state_dict(ours.decoder_norm.state_dict())

    def embedded(tokens):
        return 4 * ours.embedding.weight[tokens] + sinusoidal(tokens.shape[1], 16)

    inputs = torch.randint(4, WORDS, (B, T))
    states = encoder(embedded(source), src_key_padding_mask=~mask)
    causal = nn.Transformer.generate_square_subsequent_mask(T)
    features = decoder(embedded(inputs), states, tgt_mask=causal, memory_key_padding_mask=~mask)
    mine = ours.encode(source, mask)
    torch.testing.assert_close(mine[mask], states[mask], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.decode(inputs, mine, mask), features, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["pegasus", "bart", "t5", "led", "bert2bert"])
def test_hypotheses_that_share_a_document_equal_those_with_copies_of_it(kind, documents):
    network, (source, mask) = small(kind).double(), documents
    inputs, target = torch.randint(4, WORDS, (2, B, 3, T))
    results = []
    for shared in (True, False):
        assert network.shares_documents
        copied = copy.deepcopy(network)
        copied.shares_documents = shared
        states = copied.encode(source, mask)
        log_probs = teacher_forced(copied, states, mask, inputs, target)
        trained = [parameter for parameter in copied.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(log_probs.sum(), trained, allow_unused=True)
        options, first = DecodingOptions(beam_size=4, min_length=2, max_length=8), torch.full((B,), network.start)
        beams = beam_search(copied.stepper(V), *copied.begin(states, mask), first, 1, options, (), padding=0)
        results.append([log_probs, *filter(torch.is_tensor, gradients), *beams])
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-9)
