"""Small RSTformers and their data."""

import torch
from model_options import build_model
from transformers import LEDConfig, LEDForConditionalGeneration

from datamodules.corpora import Files
from datamodules.rstformer import RSTformerData
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.rstformer.led import Discourse
from lightning_modules.rstformer.module import RSTformer
from tests.lightning_modules.rstformer.dense_attention import made_up_edus
from tests.made_up_parses import MadeUpParser

DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=30)
SMALL = {"vocab_size": 320, "hidden_size": 16, "heads": 3, "layers": 2, "inner_size": 24, "window": 16}
SMALL |= {"positions": 64, "target_positions": 48, "dropout": 0.0, "relations": 3, "decoding": DECODING}


def small_led(**changes) -> LEDForConditionalGeneration:
    torch.manual_seed(0)
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "num_hidden_layers": 2, "vocab_size": 40, "d_model": 12}
    sizes |= {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "attention_window": [8, 8]}
    sizes |= {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    sizes |= {"max_encoder_position_embeddings": 96, "max_decoder_position_embeddings": 20}
    dropouts = dict.fromkeys(("dropout", "activation_dropout", "attention_dropout"), 0.0)
    return LEDForConditionalGeneration(LEDConfig(**sizes | dropouts | changes))


class Batch:
    """Made-up tokens, the second document shorter; global tokens differ in number."""

    def __init__(self, length=45, padded=True, everywhere=((0,), (0, 3, 17)), seed=1):
        g = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(3, 40, (2, length), generator=g)
        self.labels = torch.randint(3, 40, (2, 7), generator=g)
        self.attention_mask = torch.ones(2, length, dtype=torch.long)
        if padded:
            self.attention_mask[1, 26:] = 0
            self.input_ids[1, 26:] = 1
        self.global_attention_mask = torch.zeros(2, length, dtype=torch.long)
        for row, at in zip(self.global_attention_mask, everywhere):
            row[list(at)] = 1
        self.edu = torch.stack([made_up_edus(length, g) for _ in range(2)])
        edus = int(self.edu.max()) + 1
        band = torch.rand(2, edus, 2 * edus + 1, 3, generator=g)
        self.discourse = Discourse(band, self.edu, ["a", "b"], gamma=torch.rand(2, edus, generator=g))

    @property
    def source(self):
        return {n: getattr(self, n) for n in ("input_ids", "attention_mask", "global_attention_mask")}


def model_of(**changes) -> RSTformer:
    torch.manual_seed(0)
    settings = SMALL | changes
    if settings["hidden_size"] % settings["heads"]:
        settings["hidden_size"] = 6 * settings["heads"]
    return build_model(RSTformer, settings)


def data_of(files, folder, **changes) -> RSTformerData:
    settings = {"vocab_size": 320, "max_source": 60, "max_target": 40, "half_width": 8, "batch_size": 4}
    return RSTformerData(Files(**files), cache_dir=folder, **settings | {"parser": MadeUpParser(band=8)} | changes)


def randomized(model, text):
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.set_tokenizer(text)
    return model.eval()
