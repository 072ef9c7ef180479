"""Make a LED whose encoder has the weights of a BERT:

    python -m experiments.studies.led_from_bert.convert minilm --out led

Both are post-norm Transformers with learned positions, so that within the encoder's window the LED computes the states
of the BERT. Positions beyond those of the BERT repeat them, and global projections start as copies of local ones, as in
Longformer (Beltagy et al. 2020, section 5). The decoder has the same width, the word embeddings of the BERT and is
otherwise new. `precis fit` reads the folder as `--model.encoder.checkpoint led`.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser
from torch import Tensor
from torch.nn.init import normal_
from transformers import AutoTokenizer, BertModel, LEDConfig, LEDForConditionalGeneration, PreTrainedTokenizerBase

from datamodules.atomic_write import appearing_folder
from datamodules.documents import UserError
from datamodules.text.subwords import encoder_path

# names in a layer of the encoder: of LED, and of BERT
_LAYER = {
    **{f"self_attn.longformer_self_attn.{part}{kind}": f"attention.self.{part}"
       for part in ("query", "key", "value") for kind in ("", "_global")},
    "self_attn.output": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}  # fmt: skip


def _led_config(
    bert: BertModel, tokenizer: PreTrainedTokenizerBase, positions: int, window: int, decoder_layers: int
) -> LEDConfig:
    """Return the config of a LED of the size of a BERT; texts start with [CLS] and end with [SEP]."""
    config = bert.config
    return LEDConfig(
        vocab_size=config.vocab_size, d_model=config.hidden_size, activation_function=config.hidden_act,
        encoder_layers=config.num_hidden_layers, decoder_layers=decoder_layers, attention_window=window,
        encoder_attention_heads=config.num_attention_heads, decoder_attention_heads=config.num_attention_heads,
        encoder_ffn_dim=config.intermediate_size, decoder_ffn_dim=config.intermediate_size,
        max_encoder_position_embeddings=positions, max_decoder_position_embeddings=positions,
        dropout=config.hidden_dropout_prob, attention_dropout=config.attention_probs_dropout_prob,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.sep_token_id, forced_eos_token_id=tokenizer.sep_token_id,
    )  # fmt: skip


def _encoder_state(bert: BertModel, positions: int) -> dict[str, Tensor]:
    """Return the weights of a LED's encoder, and its word embeddings, from those of a BERT."""
    source = bert.state_dict()
    words, places = (source[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
    repeated = places.repeat(-(-positions // len(places)), 1)[:positions]                # [positions, D]
    state = {
        "led.shared.weight": words,
        "led.encoder.embed_tokens.weight": words,
        "led.decoder.embed_tokens.weight": words,
        "lm_head.weight": words,
        # a LED has no segments: all tokens are in the first one
        "led.encoder.embed_positions.weight": repeated + source["embeddings.token_type_embeddings.weight"][0],
    }
    for kind in ("weight", "bias"):
        state[f"led.encoder.layernorm_embedding.{kind}"] = source[f"embeddings.LayerNorm.{kind}"]
        for number in range(bert.config.num_hidden_layers):
            for name, of_bert in _LAYER.items():
                state[f"led.encoder.layers.{number}.{name}.{kind}"] = source[f"encoder.layer.{number}.{of_bert}.{kind}"]
    return state


def led_from_bert(
    bert: BertModel,
    tokenizer: PreTrainedTokenizerBase,
    positions: int,
    window: int,
    decoder_layers: int,
    init_std: float = 0.02,
) -> LEDForConditionalGeneration:
    """Return a LED with the encoder of a BERT and a new decoder.

    The layer norms of a LED add 1e-5 to the variance, those of most BERTs 1e-12, which changes states a little.

    Args:
        bert: model with the sizes and the dropout of the LED.
        tokenizer: tokenizer of the BERT.
        positions: largest number of tokens of a document, and of a summary.
        window: number of tokens that a token attends to, even.
        decoder_layers: number of layers of the decoder.
        init_std: standard deviation of the matrices in the decoder's layers.
    """
    led = LEDForConditionalGeneration(_led_config(bert, tokenizer, positions, window, decoder_layers))
    for weights in led.led.decoder.layers.parameters():
        if weights.dim() == 2:
            normal_(weights, std=init_std)
    state = _encoder_state(bert, positions)
    missing, unexpected = led.load_state_dict(state, strict=False)
    if unexpected or any(name.startswith("led.encoder.") for name in missing):
        problem = ", ".join([*unexpected, *missing][:3])
        raise UserError(f"the installed transformers has other names in its LED ({problem}); see constraints.txt")
    return led


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a LED whose encoder has the weights of a BERT, with its tokenizer."""
    parser = ArgumentParser(prog="python -m experiments.studies.led_from_bert.convert", description=main.__doc__)
    parser.add_argument("bert", type=str, help="minilm (the optional package), Hugging Face name or folder of a BERT")
    parser.add_argument("--out", type=str, required=True, help="folder to create")
    parser.add_argument("--positions", type=int, default=1024, help="largest number of tokens of a document")
    parser.add_argument("--window", type=int, default=512, help="number of tokens that a token attends to")
    parser.add_argument("--decoder_layers", type=int, default=3, help="number of layers of the new decoder")
    parser.add_argument("--init_std", type=float, default=0.02, help="standard deviation of its matrices")
    parser.add_argument("--seed", type=int, default=1, help="seed of the decoder's weights")
    options = parser.parse_args(arguments)
    out = Path(options.out)
    try:
        if out.exists():
            raise UserError(f"{out}: already exists; choose a new folder")
        path = encoder_path(options.bert)
        bert, tokenizer = BertModel.from_pretrained(path, add_pooling_layer=False), AutoTokenizer.from_pretrained(path)
        torch.manual_seed(options.seed)
        led = led_from_bert(
            bert, tokenizer, options.positions, options.window, options.decoder_layers, options.init_std
        )
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    with appearing_folder(out) as building:
        led.save_pretrained(building)
        tokenizer.save_pretrained(building)
    print(f"{out}: a LED of {sum(weights.numel() for weights in led.parameters()):,} weights")


if __name__ == "__main__":
    main()
