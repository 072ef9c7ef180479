from dataclasses import replace

import pytest
import torch

pytest.importorskip("peft", reason="needs the extra lora")
from small_rstformer import small_led

from lightning_modules.rstformer.led import Discourse, DiscourseLED
from lightning_modules.rstformer.lora import DiscourseAdapters, token_weights

B, T, EDUS, HALF, RELATIONS = 2, 24, 5, 2, 3


def discourse_of(seed: int = 0) -> Discourse:
    generator = torch.Generator().manual_seed(seed)
    band = torch.rand(B, EDUS, 2 * HALF + 1, RELATIONS, generator=generator) / RELATIONS
    edus = torch.arange(T).div(5, rounding_mode="floor").expand(B, T).clone()
    edus[:, 0] = edus[:, -1] = -1
    edus[1, 14:] = -1  # the second document has three EDUs
    return Discourse(band, edus, gamma=torch.rand(B, EDUS, generator=generator))


def batch(discourse: Discourse | None) -> dict:
    ids = torch.randint(4, 30, (B, T), generator=torch.Generator().manual_seed(7))
    is_global = torch.zeros(B, T, dtype=torch.long)
    is_global[:, 0] = 1
    return {
        "input_ids": ids,
        "global_attention_mask": is_global,
        "discourse": discourse,
        "decoder_input_ids": ids[:, :6],
    }


@pytest.mark.parametrize("no_labels", [False, True])
def test_a_tokens_weight_is_the_gamma_of_its_edu(no_labels):
    found, led = discourse_of(), small_led()
    adapters = DiscourseAdapters(led, rank=2, alpha=6.0, no_labels=no_labels)
    network = DiscourseLED(led, None, "chunked", adapters).eval()
    with torch.no_grad():
        network(**batch(found))
    for n in range(B):
        for t in range(T):
            edu = int(found.token_edu[n, t])
            expected = float(found.gamma[n, edu]) / (RELATIONS if no_labels else 1) if edu >= 0 else 0.0
            assert float(adapters.gamma[n, t]) == pytest.approx(expected, abs=1e-6)
    with pytest.raises(ValueError, match="weighted by gamma, which the discourse of the batch lacks"):
        network(**batch(replace(found, gamma=None)))


def test_the_update_is_weighted_in_the_encoder_and_nowhere_else():
    led = small_led()
    adapters = DiscourseAdapters(led, rank=2, alpha=6.0)
    network = DiscourseLED(led, None, "chunked", adapters).eval()
    for name, parameter in network.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    seen = {}
    for name, module in network.named_modules():
        if hasattr(module, "base_layer"):

            def keep(module, inputs, out, name=name) -> None:
                seen[name] = (module, inputs[0], out)

            module.register_forward_hook(keep)
    discourse = discourse_of()
    with torch.no_grad():
        network(**batch(discourse))
    gamma = token_weights(discourse.gamma, discourse.token_edu)
    assert len(seen) == 2 * 2 + 2 * 2
    for name, (module, x, out) in seen.items():
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        weighted = x * (1 + gamma).unsqueeze(-1) if ".encoder.layers." in name else x
        expected = module.base_layer(x) + 6.0 / 2 * (weighted @ down.T @ up.T)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_it_starts_at_the_led_and_learns_adapters_alone():
    plain, led = DiscourseLED(small_led(), None, "chunked").eval(), small_led()
    network = DiscourseLED(led, None, "chunked", DiscourseAdapters(led, 2, 4.0)).eval()
    discourse = discourse_of()
    expected, out = plain(**batch(None)).logits, network(**batch(discourse)).logits
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    learned = {name for name, p in network.named_parameters() if p.requires_grad}
    assert learned == {name for name, p in network.named_parameters() if p.grad is not None}
    assert learned and all("lora_" in name for name in learned)
