"""Each path of attention against PyTorch's plain operations in double precision, on the CPU and on a GPU."""

import pytest
import torch

from lightning_modules.rstformer import dense_attention as dense
from lightning_modules.rstformer import injection as injections
from lightning_modules.rstformer.chunked_attention import chunked_attention
from lightning_modules.rstformer.dense_attention import batched_attention, dense_attention
from lightning_modules.rstformer.fused_attention import fused_attention
from lightning_modules.rstformer.injection import INJECTIONS, DiscourseInjection, HeadTable, View, head_relations
from tests.lightning_modules.rstformer.dense_attention import made_up_edus, made_up_ldd
from tests.made_up_parses import to_band

HEADS, RELATIONS, WIDTH, LENGTH, WINDOW = 3, 2, 16, 300, 40
VARIANTS = [*((injection, "none") for injection in INJECTIONS), ("product", "wac"), ("log_bias", "no_labels")]
PATHS = {"chunked": chunked_attention, "dense": dense_attention, "fused": fused_attention}
PATHS["batched"] = batched_attention
# relative to the largest value: rounding of fp32 (tf32 is off), and of bf16 with its 8 bits
TOLERANCES = {torch.float32: 2e-4, torch.bfloat16: 4e-2}


@pytest.fixture(scope="module")
def batch():
    """Queries, keys, values [2, H, T, D], masks and EDUs [2, T], and the discourse band, on the CPU."""
    g = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, HEADS, LENGTH, WIDTH, generator=g) / scale for scale in (WIDTH**0.5, 1, 1)]
    token_mask = torch.ones(2, LENGTH, dtype=torch.long)
    token_mask[1, 200:] = 0
    is_global = torch.zeros_like(token_mask)
    is_global[0, 0] = is_global[1, [0, 7]] = 1
    edus = torch.stack([made_up_edus(LENGTH, g) for _ in range(2)])
    half, most = int(injections.reach_by_document(edus, WINDOW).max()), int(edus.max()) + 1
    band = torch.zeros(2, most, 2 * half + 1, RELATIONS)
    for n, row in enumerate(edus):
        size = int(row.max()) + 1
        band[n, :size] = to_band(made_up_ldd(size, RELATIONS, g).float(), half)
    return tensors, token_mask, is_global, edus, band


def attended(attend, batch, injection, ablation, device, dtype, table_dtype) -> list[torch.Tensor]:
    """Return the output at tokens that are not global, and the gradients of inputs and parameters, in float64."""
    tensors, token_mask, is_global, edus, band = batch
    view = View.of(token_mask.to(device), is_global, edus)
    module = DiscourseInjection(head_relations(HEADS, RELATIONS), injection, ablation, learn_weights=True)
    module = module.to(device, table_dtype)
    if module.beta is not None:
        module.beta.data.copy_(torch.tensor([0.7, -0.4, 1.3]))
    inputs = [x.to(device, dtype).requires_grad_() for x in tensors]
    table = module(band.to(device, table_dtype))
    out = attend(*inputs, view, table, WINDOW).masked_fill(view.is_global[:, None, :, None], 0)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    gradients = torch.autograd.grad((out * weight).sum(), [*inputs, *module.parameters()])
    return [x.detach().double().cpu() for x in (out, *gradients)]


# the fused path has no backward pass on a CPU: the other paths stand for it there
CPU_RUNS = [(path, "cpu", torch.float32) for path in ("chunked", "batched", "dense")]
RUNS = [pytest.param(*run, id=f"{run[0]}-cpu-fp32") for run in CPU_RUNS]
RUNS += [
    pytest.param(path, "cuda", dtype, marks=pytest.mark.cuda, id=f"{path}-cuda-{name}")
    for path in ("fused", "chunked", "dense")
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
]


@pytest.mark.parametrize("injection, ablation", VARIANTS)
@pytest.mark.parametrize("path, device, dtype", RUNS)
def test_forward_and_backward_equal_double_precision(path, device, dtype, injection, ablation, batch, monkeypatch):
    monkeypatch.setattr(dense, "CHUNK", 100)
    want = attended(dense_attention, batch, injection, ablation, "cpu", torch.double, torch.double)
    outcome = attended(PATHS[path], batch, injection, ablation, device, dtype, torch.float32)
    for one, other in zip(outcome, want, strict=True):
        assert one.isfinite().all()
        assert (one - other).norm() <= TOLERANCES[dtype] * other.norm() + 1e-6


@pytest.mark.parametrize("device", [
    pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.cuda)
])  # fmt: skip
@pytest.mark.parametrize("length", [300, 130])
def test_the_compiled_kernel_without_gradients(length, device, batch):
    """Inductor's code for `flex_attention` exists for CPUs as well: the kernel's logic without a GPU, in a minute."""
    tensors, token_mask, is_global, edus, band = batch
    q, k, v = (x[:, :, :length].to(device) for x in tensors)
    masks = (token_mask[:, :length].to(device), is_global[:, :length], edus[:, :length])
    with torch.no_grad():
        for operation in ("scale", "shift", "replace"):
            values = torch.rand(2, HEADS, *band.shape[1:3], generator=torch.Generator().manual_seed(0)).to(device)
            table = HeadTable(values, operation)
            try:
                out = fused_attention(q, k, v, View.of(*masks), table, WINDOW)
            except (torch._dynamo.exc.BackendCompilerFailed, torch._inductor.exc.InductorError) as error:
                pytest.skip(f"nothing can be compiled here: {type(error).__name__}")
            want = dense_attention(q, k, v, View.of(*masks), table, WINDOW)
            usual = ~masks[1].bool()[:, None, :, None].to(device)
            torch.testing.assert_close(out * usual, want * usual, atol=1e-4, rtol=1e-3)
