from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention_dropout import run
from lightning_modules.networks import pretrained_attention, transformer
from lightning_modules.networks.dropout_attention import attention


def test_each_way_uses_its_attention_in_all_models():
    seen = []
    for way in ("pytorch", "ours"):
        run(way, lambda: seen.append((transformer.attention, pretrained_attention.attention)))
    assert seen == [(scaled_dot_product_attention,) * 2, (attention,) * 2]
