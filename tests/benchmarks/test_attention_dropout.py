from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention_dropout import WAYS, run
from lightning_modules.networks import pretrained_attention, transformer
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.dropout_attention import attention


def test_each_way_uses_its_attention_and_dropout_in_all_models():
    used, ours = [], Dropout.forward
    for way in WAYS:
        run(way, lambda: used.append((transformer.attention, pretrained_attention.attention, Dropout.forward)))
    plain, pytorchs = nn.Dropout.forward, scaled_dot_product_attention
    assert used == [(pytorchs, pytorchs, plain), (attention, attention, plain), (attention, attention, ours)]
    assert Dropout.forward is ours
