import pytest
import torch
from small_rstformer import Batch, small_led

from lightning_modules.rstformer.attention_maps import between_edus, edu_attention, weights_of
from lightning_modules.rstformer.injection import DiscourseInjection, View, head_relations
from lightning_modules.rstformer.led import Discourse, DiscourseLED, LayerView

T, HEADS = 300, 3


def network_of(injection="product", ablation="none", window=16) -> DiscourseLED:
    led = small_led(attention_window=[window] * 2, max_encoder_position_embeddings=T)
    injection = DiscourseInjection(head_relations(HEADS, 3), injection, ablation)
    network = DiscourseLED(led, injection, "chunked").eval()
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return network


def inputs() -> dict:
    """Return one document of 290 tokens and padding, whose first token is global."""
    batch = Batch(length=T, padded=False, everywhere=((0,), (0,)))
    batch.attention_mask[:, 290:] = 0
    batch.edu[:, 0] = -1
    batch.edu[:, 290:] = -1
    source = {name: tensor[:1] for name, tensor in batch.source.items()}
    return source | {"discourse": Discourse(batch.discourse.band[:1], batch.edu[:1])}


@pytest.mark.parametrize(
    ("injection", "ablation"), [("product", "none"), ("log_bias", "none"), ("product", "wac"), ("one_plus", "none")]
)
def test_the_weights_are_those_that_the_layer_mixes_its_values_with(injection, ablation):
    network, arguments = network_of(injection, ablation), inputs()
    module = network.encoder.layers[0].self_attn.longformer_self_attn
    hidden = torch.randn(1, T, 12)
    batch, tables = network.views(*arguments.values())
    rows = torch.arange(1, 290)  # the first is global and has projections of its own
    for table in (tables[0], None):
        (out,) = module(hidden, attention_mask=LayerView(batch, table))
        weights = weights_of(module, hidden, batch, table and table(), rows)
        values = module.split(module.value, hidden)[0]
        torch.testing.assert_close((weights @ values).transpose(0, 1).flatten(1), out[0, rows], atol=1e-5, rtol=1e-5)


def test_maps_are_sums_over_keys_and_means_over_queries():
    network, arguments = network_of(), inputs()
    module, hidden = network.encoder.layers[0].self_attn.longformer_self_attn, torch.randn(1, T, 12)
    edu = arguments["discourse"].token_edu[0]
    view = View.of(arguments["attention_mask"], arguments["global_attention_mask"], edu[None])
    table = network.injections[0](arguments["discourse"].band)
    weights = weights_of(module, hidden, view, table, torch.arange(T))
    maps = between_edus(module, hidden, view, table, edu, arguments["discourse"].band.shape[1])
    for a, b in ((0, 0), (3, 4), (20, 18), (55, 57), (9, 8)):
        queries, keys = (edu == a).nonzero().flatten(), (edu == b).nonzero().flatten()
        expected = sum(weights[:, q, k] for q in queries for k in keys) / max(1, len(queries))
        torch.testing.assert_close(maps[:, a, b], torch.as_tensor(expected).expand(HEADS), atol=1e-6, rtol=1e-5)


def test_both_kinds_in_every_layer_and_head():
    network, arguments = network_of(), inputs()
    edus = arguments["discourse"].band.shape[1]
    maps = edu_attention(network, edus, **arguments)
    assert maps.with_discourse.shape == maps.without.shape == (2, HEADS, edus, edus)
    assert maps.without.sum(-1).le(1 + 1e-5).all() and not torch.allclose(maps.without, maps.with_discourse)
    started = network_of("log_bias")
    for injection in started.injections:
        injection.beta.data.zero_()
    same = edu_attention(started, edus, **arguments)
    torch.testing.assert_close(same.with_discourse, same.without)
    with pytest.raises(ValueError, match="single document with discourse"):
        edu_attention(network, edus, **arguments | {"discourse": None})
