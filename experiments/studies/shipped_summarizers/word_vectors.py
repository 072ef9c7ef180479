"""Give the embeddings of a BertSum from scratch the principal components of MiniLM's word vectors.

    python -m experiments.studies.shipped_summarizers.word_vectors runs/small_start

The vector of a token is the mean of those of the subwords that MiniLM's tokenizer makes of its text. All checkpoints of
the run are changed, from which `precis fit --start_from` then starts.
"""

from argparse import ArgumentParser
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from datamodules.text.subword_tokenizer import EncoderTokenizer
from datamodules.text.subwords import MINILM, encoder_path

NAME = "network.reader.model.embedding.weight"


def components(size: int) -> Tensor:
    """Return the first principal components of MiniLM's word vectors, with mean square 1, [V, size]."""
    vectors = load_file(Path(encoder_path(MINILM)) / "model.safetensors")["embeddings.word_embeddings.weight"]
    centered = vectors - vectors.mean(0)
    _, axes = torch.linalg.eigh(centered.T @ centered)  # in the order of their variance
    projected = centered @ axes.flip(1)[:, :size]
    return projected / projected.square().mean().sqrt()


def token_vectors(tokenizer: EncoderTokenizer, size: int) -> Tensor:
    """Return a vector for each token of a byte-level tokenizer, [V, size]; 0 for parts of characters."""
    subwords, vectors = EncoderTokenizer.of_checkpoint(MINILM), components(size)
    rows = []
    for index in range(len(tokenizer)):
        ids = subwords(tokenizer.backend.decode([index]))[0]
        rows.append(vectors[ids].mean(0) if ids else torch.zeros(size))
    return torch.stack(rows)


def main() -> None:
    """Change the checkpoints of a run."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="run folder of small.yaml")
    run = parser.parse_args().run
    tokenizer = EncoderTokenizer.load(run / "text")
    for path in {path.resolve() for path in (run / "checkpoints").glob("*.ckpt")}:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        embedding = checkpoint["state_dict"][NAME]
        vectors = token_vectors(tokenizer, embedding.shape[1])
        # the network multiplies embeddings by the root of their width
        embedding[: len(vectors)] = vectors * embedding.shape[1] ** -0.5
        torch.save(checkpoint, path)
        print(path)


if __name__ == "__main__":
    main()
