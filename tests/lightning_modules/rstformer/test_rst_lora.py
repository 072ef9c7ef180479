from dataclasses import replace

import pytest
import torch

pytest.importorskip("peft", reason="needs the extra lora")
from small_rstformer import Batch, small_led

from lightning_modules.rstformer.led import Discourse, DiscourseLED
from lightning_modules.rstformer.lora import DiscourseAdapters

BATCH = Batch(length=24, everywhere=((0,), (0,)))
BATCH.edu[:, 0] = -1  # global


def logits(network: DiscourseLED, discourse: Discourse | None = BATCH.discourse) -> torch.Tensor:
    states, mask = network.encode(**BATCH.source, discourse=discourse), BATCH.attention_mask
    return network.led(encoder_outputs=states, attention_mask=mask, decoder_input_ids=BATCH.labels).logits


@pytest.mark.parametrize("no_labels", [False, True])
def test_updates_are_weighted_by_the_gamma_of_the_edu_in_the_encoder_and_nowhere_else(no_labels):
    discourse, led = BATCH.discourse, small_led()
    adapters = DiscourseAdapters(led, rank=2, alpha=6.0, no_labels=no_labels)
    network = DiscourseLED(led, None, "chunked", adapters).eval()
    for name, parameter in network.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    seen = {}
    for name, module in network.named_modules():
        if hasattr(module, "base_layer"):
            module.register_forward_hook(lambda module, x, out, name=name: seen.update({name: (module, *x, out)}))
    with torch.no_grad():
        logits(network)
    edu = discourse.token_edu
    gamma = discourse.gamma.gather(1, edu.clamp(min=0)) * (edu >= 0) / (3 if no_labels else 1)
    torch.testing.assert_close(adapters.gamma, gamma, atol=1e-6, rtol=0)
    assert len(seen) == 2 * 2 + 2 * 2
    for name, (module, x, out) in seen.items():
        down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
        weighted = x * (1 + gamma).unsqueeze(-1) if ".encoder.layers." in name else x
        expected = module.base_layer(x) + 6.0 / 2 * (weighted @ down.T @ up.T)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="weighted by gamma, which the discourse of the batch lacks"):
        logits(network, replace(discourse, gamma=None))


def test_it_starts_at_the_led_and_learns_adapters_alone():
    plain, led = DiscourseLED(small_led(), None, "chunked").eval(), small_led()
    network = DiscourseLED(led, None, "chunked", DiscourseAdapters(led, 2, 4.0)).eval()
    out = logits(network)
    torch.testing.assert_close(out, logits(plain, None))
    out.square().sum().backward()
    learned = {name for name, p in network.named_parameters() if p.requires_grad}
    assert learned == {name for name, p in network.named_parameters() if p.grad is not None}
    assert learned and all("lora_" in name for name in learned)
