import copy

import pytest
import torch
from small_rstformer import Batch, small_led
from torch.testing import assert_close
from transformers import LEDForConditionalGeneration

from lightning_modules.rstformer import led as led_module
from lightning_modules.rstformer.injection import DiscourseInjection, head_relations
from lightning_modules.rstformer.led import Discourse, DiscourseLED

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
    out, want = (model(**batch.source, labels=batch.labels) for model in (ours, theirs))
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
            ours.checkpoint_activations()
        batch, other = Batch(), Batch(seed=5, length=33)
        loss = ours(**batch.source, discourse=batch.discourse, labels=batch.labels).loss
        ours(**other.source, discourse=other.discourse, labels=other.labels)  # another batch between the two passes
        loss.backward()
        grads.append([p.grad for p in ours.parameters()])
    assert_close(*grads, atol=1e-6, rtol=1e-5)


@pytest.mark.integration
def test_the_fused_path_is_the_same_model():
    batch = Batch()
    ours = DiscourseLED(plain(attention_window=[8, 8]), injection("one_plus")).eval()
    fused = DiscourseLED(plain(attention_window=[8, 8]), injection("one_plus"), path="fused").eval()
    with torch.no_grad():
        expected = ours.encode(**batch.source, discourse=batch.discourse).last_hidden_state
        try:
            states = fused.encode(**batch.source, discourse=batch.discourse).last_hidden_state
        except (torch._dynamo.exc.BackendCompilerFailed, torch._inductor.exc.InductorError) as error:
            pytest.skip(f"nothing can be compiled here: {type(error).__name__}")
    assert_close(states, expected, atol=1e-5, rtol=1e-5)


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


def test_the_path_of_attention_is_chosen_and_reported_with_its_reason(monkeypatch):
    messages = []
    monkeypatch.setattr(led_module, "rank_zero_info", messages.append)
    led_module._report.cache_clear()
    attention, small = (
        DiscourseLED(plain(d_model=size)).encoder.layers[0].self_attn.longformer_self_attn for size in (48, 16)
    )
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    attention.dropout = 0.1
    for training in (True, False):
        attention.train(training)
        for device, length in ((cuda, 1000), (cuda, 100), (cpu, 1000), (cpu, 100), (cpu, 90)):
            led_module._report(*attention.choose(device, length))
    assert [message.removeprefix("attention of the encoder: ") for message in messages] == [
        "chunked (attention dropout 0.1, which the fused path does not support, more than 192 tokens)",
        "dense (attention dropout 0.1, which the fused path does not support, at most 192 tokens)",
        "chunked (on cpu, more than 192 tokens)",
        "dense (on cpu, at most 192 tokens)",
        "fused (on CUDA, without attention dropout)",
    ]
    assert small.choose(cuda, 1000) == (
        "chunked", f"{16 // small.heads} dimensions per head, but the fused path needs 16, more than 192 tokens"
    )  # fmt: skip
