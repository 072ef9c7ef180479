from collections import namedtuple
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lightning_modules.rstformer import chunked_attention as chunked
from lightning_modules.rstformer import dense_attention as dense
from lightning_modules.rstformer import injection as injections
from lightning_modules.rstformer.chunked_attention import chunked_attention
from lightning_modules.rstformer.dense_attention import batched_attention, dense_attention
from lightning_modules.rstformer.fused_attention import BLOCK, block_mask, fused_attention, padded_size
from lightning_modules.rstformer.injection import INJECTIONS, DiscourseInjection, HeadTable, View, head_relations
from tests.lightning_modules.rstformer.dense_attention import dense_attention as attention_over_all_pairs
from tests.lightning_modules.rstformer.dense_attention import made_up_edus, made_up_ldd, weights_of
from tests.made_up_parses import to_band

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

HEADS, RELATIONS, WIDTH, WINDOW = 3, 2, 4, 6
BETA = torch.tensor([0.7, -0.4, 1.3], dtype=torch.double)
VARIANTS = [*((injection, "none", True) for injection in INJECTIONS), ("product", "wac", True)]
VARIANTS += [("one_plus", "no_labels", True), ("bias", "no_discourse", True), ("log_bias", "no_labels", True)]
VARIANTS += [("log_bias", "none", False), ("log_bias", "no_labels", False)]
BIASED = [variant for variant in VARIANTS if "bias" in variant[0] and variant[1] != "no_discourse"]
GLOBALS = {"none": [], "first": [0], "several": [0, 7, 20]}
# a batch of made-up documents of different lengths, the last one short, padding also in the middle of it
Case = namedtuple("Case", "q k v view edu ldds band")


def case(length=29, which="first", half=None, dtype=torch.double):
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, HEADS, length, WIDTH, generator=g, dtype=dtype) for _ in range(3))
    token_mask = torch.ones(2, length, dtype=torch.bool)
    token_mask[1, length * 2 // 3 :] = False
    token_mask[1, 5] = False
    is_global = torch.zeros_like(token_mask)
    is_global[:, [n for n in GLOBALS[which] if n < length]] = True
    edu = torch.stack([made_up_edus(length, g) for _ in range(2)])
    view = View.of(token_mask, is_global, edu)
    ldds = [made_up_ldd(int(row.max()) + 1, RELATIONS, g).to(dtype) for row in edu]
    half = int(injections.reach_by_document(view.token_edu, WINDOW).max()) if half is None else half
    bands = [to_band(p, half) for p in ldds]
    most = max(len(band) for band in bands)
    band = torch.stack([torch.nn.functional.pad(b, (0, 0, 0, 0, 0, most - len(b))) for b in bands])
    return Case(q, k, v, view, edu, ldds, band)


def injection_of(injection, ablation, dtype=torch.double, **options):
    module = DiscourseInjection(head_relations(HEADS, RELATIONS), injection, ablation, **options).to(dtype)
    if module.beta is not None:
        module.beta.data.copy_(BETA)
    return module


def expected(c: Case, injection, ablation, q, k, v, own_edu_neutral=True):
    out = []
    for n, p in enumerate(c.ldds):
        places = (c.view.token_mask[n], c.view.is_global[n], c.edu[n], weights_of(p, HEADS, ablation))
        how = (WINDOW, injection, ablation, BETA, own_edu_neutral)
        out.append(attention_over_all_pairs(q[n], k[n], v[n], *places, *how))
    return torch.stack(out)


def usual(c: Case, x: Tensor) -> Tensor:
    """Rows of tokens that are not global."""
    return x.masked_fill(c.view.is_global[:, None, :, None], 0)


def chunks_of(size: int, attend=chunked_attention, module=chunked):
    def patched(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "CHUNK", size)
            return attend(*arguments)

    return patched


PATHS = {f"chunked-{size}": chunks_of(size) for size in (64, 7)} | {"dense": dense_attention}
PATHS |= {f"batched-{size}": chunks_of(size, batched_attention, dense) for size in (5, 64)}
every_path = pytest.mark.parametrize("path", PATHS)


@pytest.mark.parametrize("which", GLOBALS)
@pytest.mark.parametrize("injection, ablation, neutral", VARIANTS)
def test_every_path_equals_the_formula_forward_and_backward(injection, ablation, neutral, which):
    c = case(which=which)
    table = injection_of(injection, ablation, own_edu_neutral=neutral)(c.band)
    direction = torch.randn(c.q.shape, generator=torch.Generator().manual_seed(1), dtype=c.q.dtype)

    def passes(attend) -> list[Tensor]:
        inputs = [x.clone().requires_grad_() for x in (c.q, c.k, c.v)]
        out = usual(c, attend(*inputs))
        return [out, *torch.autograd.grad((out * direction).sum(), inputs, retain_graph=True)]

    references = passes(lambda q, k, v: expected(c, injection, ablation, q, k, v, neutral))
    for attend in PATHS.values():
        assert_close(passes(lambda *qkv, attend=attend: attend(*qkv, c.view, table, WINDOW)), references)
    with torch.no_grad():
        fused = fused_attention(c.q, c.k, c.v, c.view, table, WINDOW, compiled=False)
    assert_close(usual(c, fused), references[0])


@every_path
@pytest.mark.parametrize("operation", ["scale", "shift", "replace"])
def test_gradient_of_the_table(operation, path):
    c = case(length=17)
    values = torch.rand(2, HEADS, *c.band.shape[1:3], dtype=torch.double, requires_grad=True)

    def attended(values, q, k, v):
        return usual(c, PATHS[path](q, k, v, c.view, HeadTable(values, operation), WINDOW))

    inputs = (values, *(x.clone().requires_grad_() for x in (c.q, c.k, c.v)))
    assert torch.autograd.gradcheck(attended, inputs, fast_mode=True)


@pytest.mark.parametrize("injection", ["bias", "log_bias", "product"])
def test_learned_weights_get_the_gradient_of_finite_differences(injection):
    c = case(length=17)
    module = injection_of(injection, "none", learn_weights=True)
    module.weights.data += 0.1

    def attend(*values):
        made = torch.func.functional_call(module, dict(zip(names, values)), (c.band,))
        return usual(c, chunked_attention(c.q, c.k, c.v, c.view, made, WINDOW))

    names = [name for name, _ in module.named_parameters()]
    assert names == (["weights"] if injection == "product" else ["weights", "beta"])
    assert torch.autograd.gradcheck(attend, tuple(module.parameters()), fast_mode=True)


def test_one_edu_alone_no_edu_at_all_and_nothing_but_padding():
    c = case(length=9, which="none")
    inside = View.of(c.view.token_mask, None, torch.zeros(2, 9))
    outside = View.of(c.view.token_mask, None, torch.full((2, 9), -1))
    table = injection_of("product", "none")(torch.zeros(2, 1, 1, RELATIONS, dtype=torch.double))
    plain = chunked_attention(c.q, c.k, c.v, outside, None, 20)
    assert_close(chunked_attention(c.q, c.k, c.v, outside, table, 20), plain)
    # p(a, a) = 0: every score of the window is 0, so that all tokens weigh the same
    mean = c.v[0].mean(1, keepdim=True).expand(-1, 9, -1)
    assert_close(chunked_attention(c.q, c.k, c.v, inside, table, 20)[0], mean)
    padding, q = View.of(torch.zeros(2, 9), None, torch.zeros(2, 9)), c.q.clone().requires_grad_()
    out = chunked_attention(q, c.k, c.v, padding, injection_of("product", "none")(c.band), 3)
    out.sum().backward()
    assert out.eq(0).all() and q.grad.eq(0).all()


def test_dropout_drops_the_same_weights_in_both_passes_and_backward_keeps_memory_linear():
    c = case(length=60)

    def attend(q, k, v, window=WINDOW):
        torch.manual_seed(3)
        return chunked_attention(q, k, v, c.view, None, window, 0.3)

    inputs, stored = [x.clone().requires_grad_() for x in (c.q, c.k, c.v)], []
    assert torch.autograd.gradcheck(attend, inputs, fast_mode=True)
    for window in (2, 50):  # no score is stored: the memory of autograd does not grow with the window
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t):
            chunked_attention(*inputs, c.view, None, window)
        stored.append(sum(sizes))
    assert stored[0] == stored[1] <= 4 * c.q.numel() + 3 * c.view.token_mask.numel()


@every_path
def test_half_precision_and_dropout_that_keeps_the_mean(path):
    torch.manual_seed(0)
    attend, c = PATHS[path], case(length=20, dtype=torch.float32)
    table = HeadTable(torch.rand(2, HEADS, *c.band.shape[1:3]), "shift")
    exact = attend(c.q, c.k, c.v, c.view, table, WINDOW)
    inputs = [x.bfloat16().requires_grad_() for x in (c.q, c.k, c.v)]
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(*inputs, c.view, table, WINDOW)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), exact, atol=0.05, rtol=0.05)
    out.float().sum().backward()
    assert all(x.grad.dtype == torch.bfloat16 and x.grad.isfinite().all() for x in inputs)
    many = torch.stack([attend(c.q, c.k, c.v, c.view, table, WINDOW, 0.3) for _ in range(300)])
    assert ((many.mean(0) - exact).abs() <= 5 * many.std(0) / 300**0.5 + 1e-6).all() and (many.std(0)[0] > 0.01).all()


@pytest.mark.parametrize("learn_weights", [True, False])
@pytest.mark.parametrize("ablation", ["none", "wac"])
@pytest.mark.parametrize("injection", INJECTIONS)
def test_tables_under_autocast_and_in_half_precision(injection, ablation, learn_weights):
    """Under autocast the table is computed in 32 bits; parameters of 16 bits get gradients of 16 bits."""
    c = case(dtype=torch.float32)
    module = DiscourseInjection(torch.rand(HEADS, c.band.shape[-1]), injection, ablation, learn_weights)
    expected = module(c.band)
    inputs = [x.bfloat16() for x in (c.q, c.k, c.v)]
    for autocast in (True, False):
        module = module if autocast else module.bfloat16()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            table = module(c.band)
            if autocast:
                assert_close(table.values, expected.values)
            out = chunked_attention(*inputs, c.view, table, WINDOW)
        if module.learned:
            out.float().sum().backward()
            assert all(p.grad.dtype == p.dtype and p.grad.isfinite().all() for p in module.parameters())
            module.zero_grad()


def test_heads_and_relations_and_only_biases_learn_unless_asked():
    assert_close(head_relations(2, 2), torch.eye(2))
    assert_close(head_relations(4, 2), torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, 1]]))
    assert_close(head_relations(2, 4, [5, 1, 2, 9]), torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1]]))
    with pytest.raises(ValueError, match="2 heads for 3 relations: give the frequency"):
        head_relations(2, 3)
    with pytest.raises(ValueError, match="2 frequencies of 3 relations"):
        head_relations(4, 3, [1, 2])
    for injection, ablation in product(INJECTIONS, injections.ABLATIONS):
        module = DiscourseInjection(head_relations(HEADS, RELATIONS), injection, ablation)
        biased = "bias" in injection and ablation not in ("wac", "no_discourse")
        assert module.learned == biased == bool(list(module.parameters()))
        assert list(module.state_dict()) == (["beta"] if biased else [])
    learned = DiscourseInjection(head_relations(HEADS, RELATIONS), "bias", learn_weights=True)
    assert [name for name, _ in learned.named_parameters()] == ["weights", "beta"]


def test_reach_is_the_widest_pair_of_any_window_and_a_band_that_it_leaves_is_refused():
    g = torch.Generator().manual_seed(0)
    for _ in range(30):
        length, window = int(torch.randint(1, 25, (), generator=g)), int(torch.randint(0, 30, (), generator=g))
        edu = made_up_edus(length, g)[None]
        row = edu[0].tolist()
        pairs = [abs(a - b) for i, a in enumerate(row) for b in row[max(0, i - window) : i + 1] if min(a, b) >= 0]
        assert int(injections.reach_by_document(edu, window).max()) == max(pairs, default=0)
    edu = torch.arange(12)[None] // 2
    band = torch.zeros(1, 6, 5, RELATIONS)
    injections.check_band(edu, 4, band)
    injections.check_band(torch.full((1, 12), -1), 4, band)
    with pytest.raises(ValueError, match=r"document 'a': the window of 5 .* reaches 3 EDUs, .* holds 2 .* band of 3"):
        injections.check_band(edu, 5, band, ["a"])
    with pytest.raises(ValueError, match="document 0 of the batch: a token is in EDU 5 of 4 in the parse"):
        injections.check_band(edu, 4, band[:, :4])
    with pytest.raises(ValueError, match=r"are \[B, E, 2b \+ 1, R\], got \[1, 6, 4, 2\]"):
        injections.check_band(edu, 4, band[:, :, :4])


@pytest.mark.parametrize("injection, ablation, neutral", BIASED)
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
        some, whole = (
            {(row, int(col)) for row in range(count) for col in indices[n, 0, row, : int(counts[n, 0, row])]}
            for counts, indices in (mask[:2], mask[2:])
        )
        assert not some & whole
        for row in range(count):
            for col in range(count):
                part = visible[n, row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK]
                block = near[row * BLOCK : (row + 1) * BLOCK, col * BLOCK : (col + 1) * BLOCK]
                assert not part.any() or (row, col) in some | whole
                if (row, col) in whole:
                    assert part.shape == (BLOCK, BLOCK) or row == length // BLOCK
                    assert block.all() and c.view.token_mask[n, col * BLOCK : (col + 1) * BLOCK].all()


def test_fused_refuses_gradients_on_a_cpu():
    c = case()
    with pytest.raises(RuntimeError, match="use the chunked path"):
        fused_attention(c.q.requires_grad_(), c.k, c.v, c.view, None, WINDOW)


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
