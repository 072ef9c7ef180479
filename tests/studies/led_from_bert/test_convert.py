"""A LED from a BERT: the same states within the window, and a folder that RSTformer reads."""

import torch
from model_options import build_model
from tiny_models import write_bert
from transformers import BertModel

from experiments.studies.led_from_bert.convert import main
from lightning_modules.rstformer.led import DiscourseLED
from lightning_modules.rstformer.module import RSTformer

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}


def test_states_are_those_of_the_bert(tmp_path):
    """Of a random BERT of 24 positions, whose layer norms have the epsilon of a LED's."""
    shape = {"max_position_embeddings": 24, "layer_norm_eps": 1e-5, "initializer_range": 0.5}
    folder = write_bert(tmp_path / "bert", [f"w{number}" for number in range(30)], **SIZES, **shape)
    led = str(tmp_path / "led")
    main([folder, "--out", led, "--positions=130", "--window=48", "--decoder_layers=1", "--init_std=0.25"])
    model = build_model(RSTformer, {"checkpoint": led, "ablation": "no_discourse"}).eval()
    ids = torch.randint(5, 35, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 12:] = 0
    # global tokens start as they would without: the first token sees all, and all see it
    is_global = (torch.arange(20) == 0).long().expand(3, -1)
    assert isinstance(model.network, DiscourseLED)
    with torch.no_grad():
        expected = BertModel.from_pretrained(folder)(ids, attention_mask=mask).last_hidden_state
        for inputs in ((ids, mask), (ids, mask, is_global)):
            ours = model.network.encode(*inputs).last_hidden_state
            assert torch.allclose(ours[mask > 0], expected[mask > 0], atol=1e-4)
    # positions beyond those of the BERT repeat them
    places = model.network.encoder.embed_positions.weight
    assert torch.equal(places[24:48], places[:24]) and len(places) == 130
