import math

import pytest
import torch
from torch import nn

from lightning_modules.networks.transformer import DecoderLayer, EncoderLayer, MultiHeadAttention, sinusoidal

B, T, S, D, N = 2, 5, 7, 16, 4
PADDED = torch.arange(S) < torch.tensor([[S], [4]])


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """PyTorch keeps the three projections in one matrix, and keys have a bias there (which changes nothing)."""
    for name in ("weight", "bias"):
        parts = [getattr(linear, name) for linear in (ours.query, ours.key, ours.value)]
        parts = [torch.randn(D) if part is None else part for part in parts]
        getattr(theirs, f"in_proj_{name}").data = torch.cat(parts).detach().clone()
        getattr(theirs.out_proj, name).data = getattr(ours.output, name).detach().clone()


def copy_layer(ours, theirs) -> None:
    copy_attention(ours.attention, theirs.self_attn)
    pairs = [(ours.feed_forward.inner, theirs.linear1), (ours.feed_forward.outer, theirs.linear2)]
    pairs += [(ours.around_attention.norm, theirs.norm1)]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        pairs += [(ours.around_cross.norm, theirs.norm2), (ours.around_feed_forward.norm, theirs.norm3)]
    else:
        pairs += [(ours.around_feed_forward.norm, theirs.norm2)]
    for mine, other in pairs:
        other.load_state_dict(mine.state_dict())


def scattered(module: nn.Module) -> nn.Module:
    """Away from initial values that hide errors (zero biases, unit scales)."""
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_pytorchs(norm, activation):
    ours = scattered(EncoderLayer(D, N, 32, 0.1, norm, activation))
    theirs = nn.TransformerEncoderLayer(D, N, 32, 0.1, activation, batch_first=True, norm_first=norm == "pre").eval()
    copy_layer(ours, theirs)
    x = torch.randn(B, S, D)
    expected = theirs(x, src_key_padding_mask=~PADDED)
    torch.testing.assert_close(ours(x, PADDED[:, None, None])[PADDED], expected[PADDED])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_equals_pytorchs(norm):
    ours = scattered(DecoderLayer(D, N, 32, 0.1, norm))
    theirs = nn.TransformerDecoderLayer(D, N, 32, 0.1, batch_first=True, norm_first=norm == "pre").eval()
    copy_layer(ours, theirs)
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    later = nn.Transformer.generate_square_subsequent_mask(T)
    expected = theirs(x, memory, tgt_mask=later, memory_key_padding_mask=PADDED.logical_not())
    torch.testing.assert_close(ours(x, memory, PADDED[:, None, None]), expected)


@pytest.mark.parametrize("masked", ["bool", "float"])
def test_weights_are_those_that_the_output_is_mixed_with(masked):
    attention = scattered(MultiHeadAttention(D, N))
    x, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    mask = PADDED[:, None, None] if masked == "bool" else torch.randn(B, N, T, S)
    weights = attention.weights(x, memory, mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, N, T))
    mixed = weights @ attention.project(memory).values  # [B, N, T, D / N]
    torch.testing.assert_close(attention.output(mixed.transpose(1, 2).flatten(2)), attention(x, memory, mask))


@pytest.mark.parametrize("start", [9, 1001])
def test_sinusoidal_positions_equal_the_formula(start, default_dtype):
    got = sinusoidal(4, 6, start=start)
    for row in range(4):
        for i in range(3):
            angle = (start + row) / 10_000 ** (2 * i / 6)
            assert got[row, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7 * start)
            assert got[row, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7 * start)
