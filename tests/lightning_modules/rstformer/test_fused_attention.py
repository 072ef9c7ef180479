from functools import partial

import pytest
import torch
from test_discourse_attention import HEADS, WINDOW, case, injection_of, usual
from torch.testing import assert_close

from lightning_modules.rstformer.chunked_attention import chunked_attention
from lightning_modules.rstformer.dense_attention import dense_attention
from lightning_modules.rstformer.fused_attention import BLOCK, block_mask, fused_attention, padded_size
from lightning_modules.rstformer.injection import HeadTable

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.mark.parametrize(
    "injection, ablation, neutral",
    [("log_bias", "none", True), ("log_bias", "none", False), ("bias", "none", True), ("log_bias", "no_labels", True)],
)
def test_gradient_of_the_factor_equals_that_of_dense_attention(injection, ablation, neutral):
    c = case(which="several")
    module = injection_of(injection, ablation, own_edu_neutral=neutral)
    direction = usual(c, torch.randn(c.q.shape, dtype=torch.double, generator=torch.Generator().manual_seed(3)))

    def gradient(attend):
        out = attend(c.q, c.k, c.v, c.view, module(c.band), WINDOW)
        return torch.autograd.grad((out * direction).sum(), module.beta)[0]

    expected_gradient = gradient(dense_attention)
    assert expected_gradient.abs().min() > 1e-3
    assert_close(gradient(partial(fused_attention, compiled=False)), expected_gradient, rtol=1e-9, atol=0)


@pytest.mark.parametrize("length, window", [(300, 20), (2 * BLOCK, BLOCK), (5 * BLOCK + 3, 150), (90, 400)])
def test_the_paths_agree_and_blocks_hold_every_visible_pair_and_whole_ones_nothing_else(length, window):
    c = case(length, "several", half=200)
    table = HeadTable(torch.rand(2, HEADS, *c.band.shape[1:3], dtype=torch.double), "scale")
    with torch.no_grad():
        one = chunked_attention(c.q, c.k, c.v, c.view, table, window)
        assert_close(usual(c, fused_attention(c.q, c.k, c.v, c.view, table, window, compiled=False)), usual(c, one))
    blocks, full, i = block_mask(c.view, window), padded_size(length, BLOCK), torch.arange(length)
    mask = (blocks.kv_num_blocks, blocks.kv_indices, blocks.full_kv_num_blocks, blocks.full_kv_indices)
    count = full // BLOCK
    assert blocks.seq_lengths == (full, full)
    near = (i[:, None] - i).abs() <= window
    visible = c.view.token_mask[:, None] & (near | c.view.is_global[:, None])
    visible = visible & c.view.token_mask[:, :, None]
    for n in range(2):
        partial, whole = (
            {(row, int(col)) for row in range(count) for col in indices[n, 0, row, : int(counts[n, 0, row])]}
            for counts, indices in (mask[:2], mask[2:])
        )
        assert not partial & whole
        for row in range(count):
            for col in range(count):
                part = visible[n, row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK]
                block = near[row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK]
                assert not part.any() or (row, col) in partial | whole
                if (row, col) in whole:
                    assert part.shape == (BLOCK, BLOCK) or row == length // BLOCK
                    assert block.all() and c.view.token_mask[n, col * BLOCK : (col + 1) * BLOCK].all()


def test_few_sizes_stand_for_many():
    sizes = [padded_size(size, 128) for size in range(1, 16385)]
    assert len(set(sizes)) == 24 and sizes == sorted(sizes) and all(size % 128 == 0 for size in sizes)
    assert all(size <= full <= max(128, -(-size // 128) * 128, 1.25 * size) for size, full in enumerate(sizes, 1))


@pytest.mark.integration
@pytest.mark.parametrize("length", [200, 150])
def test_compiled_fused_equals_chunked(length):
    c = case(length, "several", half=length, dtype=torch.float32)
    table = injection_of("log_bias", "none", torch.float32)(c.band)
    with torch.no_grad():
        q, k, v = (torch.nn.functional.pad(x, (0, 12)) for x in (c.q, c.k, c.v))  # the kernel wants 16 values a head
        try:
            out = fused_attention(q, k, v, c.view, table, 30)
        except (torch._dynamo.exc.BackendCompilerFailed, torch._inductor.exc.InductorError) as error:
            pytest.skip(f"nothing can be compiled here: {type(error).__name__}")
        assert_close(usual(c, out), usual(c, chunked_attention(q, k, v, c.view, table, 30)), atol=1e-5, rtol=1e-4)


def test_fused_refuses_gradients_on_a_cpu():
    c = case()
    with pytest.raises(RuntimeError, match="use the chunked path"):
        fused_attention(c.q.requires_grad_(), c.k, c.v, c.view, None, WINDOW)
