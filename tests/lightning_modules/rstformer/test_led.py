import copy

import pytest
import torch
from small_rstformer import Batch, small_led
from torch.testing import assert_close
from transformers import LEDForConditionalGeneration

from lightning_modules.rstformer.attention_maps import between_edus, edu_attention, weights_of
from lightning_modules.rstformer.injection import DiscourseInjection, View, head_relations
from lightning_modules.rstformer.led import Discourse, DiscourseLED, LayerView

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated")

HEADS, RELATIONS, WINDOWS = 2, 3, [8, 16]


def plain(**changes) -> LEDForConditionalGeneration:
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    led = small_led(**heads | {"d_model": 16, "attention_window": list(WINDOWS)} | changes)
    for p in led.parameters():
        p.data += 0.2 * torch.randn_like(p)  # freshly made, biases are 0 and weights so small that attention is even
    return led


def injection(name="bias", **others) -> DiscourseInjection:
    return DiscourseInjection(head_relations(HEADS, RELATIONS, [3, 1, 2]), name, **others)


BATCHES = {
    "global tokens and padding": {},
    "one global token": {"everywhere": ((0,), (0,)), "padded": False},
    "global tokens in one document": {"everywhere": ((), (2,))},
    "no global tokens": {"everywhere": ((), ())},
    "windows fit": {"length": 48},
    "shorter than a window": {"length": 27, "everywhere": ((1,), (2, 1))},
}


@pytest.mark.parametrize("path", ["chunked", "dense"])
@pytest.mark.parametrize("which", BATCHES)
def test_without_discourse_equals_hugging_face_forward_and_backward(which, path):
    batch, theirs = Batch(**BATCHES[which]), plain()
    ours = DiscourseLED(copy.deepcopy(theirs), path=path)
    states, want = ours.encode(**batch.source), theirs(**batch.source, labels=batch.labels)
    out = ours.led(attention_mask=batch.attention_mask, encoder_outputs=states, labels=batch.labels)
    assert_close(out.encoder_last_hidden_state, want.encoder_last_hidden_state, atol=1e-5, rtol=1e-5)
    assert_close(out.logits, want.logits, atol=1e-5, rtol=1e-5)
    out.loss.backward()
    want.loss.backward()
    for (name, one), (other_name, other) in zip(ours.led.named_parameters(), theirs.named_parameters()):
        assert name == other_name and one.grad is not None
        assert_close(one.grad, torch.zeros_like(one) if other.grad is None else other.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["product", "log_bias"])
def test_recomputed_activations_change_nothing(name):
    grads = []
    for checkpointed in (False, True):
        ours = DiscourseLED(plain(), injection(name, learn_weights=True)).train()
        for module in ours.injections:
            if module.beta is not None:
                module.beta.data.fill_(0.3)
        if checkpointed:
            ours.led.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        batch, other = Batch(), Batch(seed=5, length=33)
        states = ours.encode(**batch.source, discourse=batch.discourse).last_hidden_state
        ours.encode(**other.source, discourse=other.discourse)  # another batch between the two passes
        states.square().sum().backward()
        grads.append([p.grad for p in ours.parameters() if p.grad is not None])
    assert_close(*grads, atol=1e-6, rtol=1e-5)


def test_a_parse_that_does_not_fit_is_refused():
    batch, model = Batch(), DiscourseLED(plain(), injection("product"))
    with pytest.raises(ValueError, match="needs the discourse of the batch; pass it"):
        model.encode(**batch.source)
    narrow = Discourse(batch.discourse.band[:, :, batch.discourse.band.shape[1] :][:, :, :1], batch.edu, ["a", "b"])
    with pytest.raises(ValueError, match=r"document 'a': the window of 8 .* take a band of \d"):
        model.encode(**batch.source, discourse=narrow)
    long = Batch(length=97)
    with pytest.raises(ValueError, match="has 97 tokens, the model has 96 positions: cut the text"):
        model.encode(**long.source, discourse=long.discourse)
    full = Batch(length=95)  # Hugging Face would pad it to more positions than there are
    assert model.encode(**full.source, discourse=full.discourse).last_hidden_state.shape[1] == 95


def test_the_path_of_attention_is_chosen_with_a_reason():
    layers = [DiscourseLED(plain(d_model=size)).encoder.layers[0] for size in (48, 16)]
    attention, small = (layer.self_attn.longformer_self_attn for layer in layers)
    attention.dropout, small.dropout = 0.1, 0.0
    for training, device, length, path in [
        (True, "cuda", 1000, "chunked"), (True, "cuda", 100, "dense"), (True, "cpu", 1000, "chunked"),
        (True, "cpu", 90, "dense"), (False, "cuda", 1000, "fused"), (False, "cuda", 100, "fused"),
        (False, "cpu", 1000, "chunked"),
    ]:  # fmt: skip
        assert attention.train(training).choose(torch.device(device), length)[0] == path
    reason = f"on cuda, {16 // small.heads} dimensions per head, attention dropout 0.0, more than 192 tokens"
    assert small.choose(torch.device("cuda"), 1000) == ("chunked", reason)


# Attention between EDUs

T = 300


def network_of(injection="product", ablation="none") -> DiscourseLED:
    led = small_led(attention_window=[16, 16], max_encoder_position_embeddings=T)
    injection = DiscourseInjection(head_relations(3, 3), injection, ablation)
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


@pytest.mark.parametrize("names", [("product", "none"), ("log_bias", "none"), ("product", "wac"), ("one_plus", "none")])
def test_the_weights_are_those_that_the_layer_mixes_its_values_with(names):
    network, arguments = network_of(*names), inputs()
    module = network.encoder.layers[0].self_attn.longformer_self_attn
    hidden = torch.randn(1, T, 12)
    batch, tables = network.views(*arguments.values())
    rows = torch.arange(1, 290)  # the first is global and has projections of its own
    for table in (tables[0], None):
        (out,) = module(hidden, attention_mask=LayerView(batch, table))
        weights = weights_of(module, hidden, batch, table and table(), rows)
        values = module.split(module.value, hidden)[0]
        assert_close((weights @ values).transpose(0, 1).flatten(1), out[0, rows], atol=1e-5, rtol=1e-5)


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
        expected = weights[:, queries][:, :, keys].sum((1, 2)) / max(1, len(queries))
        assert_close(maps[:, a, b], expected, atol=1e-6, rtol=1e-5)
    # both kinds in every layer and head
    edus = arguments["discourse"].band.shape[1]
    maps = edu_attention(network, edus, **arguments)
    assert maps.with_discourse.shape == maps.without.shape == (2, 3, edus, edus)
    assert maps.without.sum(-1).le(1 + 1e-5).all() and not torch.allclose(maps.without, maps.with_discourse)
    started = network_of("log_bias")
    for injection in started.injections:
        injection.beta.data.zero_()
    same = edu_attention(started, edus, **arguments)
    assert_close(same.with_discourse, same.without)
    with pytest.raises(ValueError, match="single document with discourse"):
        edu_attention(network, edus, **arguments | {"discourse": None})
