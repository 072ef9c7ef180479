"""Write a LED that starts from a pretrained BERT encoder, for `model.checkpoint` and `data.checkpoint` of RSTformer.

python -m experiments.led_from_encoder minilm --decoder_layers 3 --out led_minilm

The encoder computes the states of BERT; the decoder has to be trained, first with `model.frozen_encoder: true`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModel, BertModel

from datamodules.documents import CorpusError
from datamodules.text.subword_tokenizer import SubwordTokenizer
from datamodules.text.subwords import encoder_path
from lightning_modules.networks.pretrained import save_pretrained
from lightning_modules.rstformer.from_encoder import led_from_encoder


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the LED and its tokenizer to a folder; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="name or folder of a BERT encoder, or minilm")
    parser.add_argument("--decoder_layers", type=int, default=3, help="number of decoder layers (3)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args(arguments)
    try:
        if args.out.exists():
            raise CorpusError(f"--out {args.out} exists: name a folder that does not")
        path = encoder_path(args.encoder)
        tokenizer = SubwordTokenizer.of_checkpoint(path)
        encoder = AutoModel.from_pretrained(path)
        if not isinstance(encoder, BertModel):
            raise CorpusError(f"{args.encoder} is a {type(encoder).__name__}: LED's layers are those of BERT")
        special = tokenizer.start, tokenizer.pad, tokenizer.stop
        save_pretrained(args.out, led_from_encoder(encoder, special, args.decoder_layers), tokenizer)
    except (CorpusError, ValueError, OSError) as error:
        print(f"led_from_encoder: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: LED over {args.encoder}, {args.decoder_layers} decoder layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
