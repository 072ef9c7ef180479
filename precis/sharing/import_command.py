"""`precis import`: a run folder from a checkpoint of PreSumm or MatchSum."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser, Namespace
from torch import Tensor

from datamodules.atomic_write import appearing_folder
from datamodules.documents import UserError
from datamodules.text.hashing import file_digest
from lightning_modules.stored import mismatched_shapes
from precis.runs.run_folder import build, environment
from precis.sharing.foreign_files import Kind, find_kind, read_weights, rename

# Token that begins or ends PreSumm's summaries -> attribute of the suite's tokenizer with the id of its own such token.
_SUMMARY_TOKENS = {"[unused0]": "start", "[unused1]": "stop"}


def import_run(arguments: list[str]) -> None:
    """`precis import FILE --out RUN`: a run folder with the weights of a released model of PreSumm or MatchSum."""
    parser = ArgumentParser(prog="precis import", description=import_run.__doc__, exit_on_error=False)
    parser.add_argument("file", type=Path, help="checkpoint; pickled code in it is not executed")
    parser.add_argument("--out", type=Path, required=True, help="run folder to create")
    parser.add_argument("--encoder", type=str, default="bert-base-uncased", help="Hugging Face name or folder")
    parser.add_argument("--heads", type=int, default=8, help="attention heads of the layers above the encoder")
    parser.add_argument("--scorer", type=Path | None, default=None, help="for MatchSum: run that proposes sentences")
    options = parser.parse_args(arguments)
    path = options.file
    out = options.out
    if out.exists():
        raise UserError(f"{out}: already exists; choose a new folder")
    weights = read_weights(path)
    kind = find_kind(weights, path)  # presumm_ext, presumm_abs or matchsum
    state = rename(weights, kind, path)
    config = _run_config(kind, state, options)
    with appearing_folder(out) as building:
        _write_run_folder(building, config, state, kind, path)
    print(f"{out}: a run of {config['model']['class_path'].rpartition('.')[2]} from {path}")
    print(f"next: precis summarize --checkpoint {shlex.quote(str(out))} article.txt")


def _run_config(kind: Kind, state: Mapping[str, Tensor], options: Namespace) -> dict[str, Any]:
    """Return a run's config: sizes as in weights `state`, heads as in `options`, the rest as in the released code."""
    shapes = {name: tensor.shape for name, tensor in state.items()}
    num_positions = next(shape[0] for name, shape in shapes.items() if name.endswith("position_embeddings.weight"))
    vocab_size = next(shape[0] for name, shape in shapes.items() if name.endswith("word_embeddings.weight"))
    model: dict[str, Any] = {"vocab_size": vocab_size, "encoder": {"checkpoint": options.encoder}}
    data: dict[str, Any] = {"vocab_size": vocab_size, "checkpoint": options.encoder, "batch_size": 6}
    if kind != "matchsum":
        model["encoder"] |= {"long_input": "extend", "positions": num_positions}  # PreSumm's may exceed BERT's 512
    if kind == "presumm_ext":
        name, data_name = "BertSum", "ExtractiveData"
        model["inter_sentence"] = {
            "layers": _number_of_layers(shapes, r"network\.layers\.(\d+)\."),
            "heads": options.heads,
            "inner_size": shapes["network.layers.0.feed_forward.inner.weight"][0],
            "activation": "gelu_tanh",
            "first_norm": False,
        }
        model["loss"] = "labels"
        model["selection"] = {"selector": "trigram_blocking", "k": 3}  # as in PreSumm, like the data options below
        data |= {"max_source": num_positions, "min_words": 6, "max_words": 200}
        data |= {"oracle_stem": False, "oracle_counts": "set"}  # ROUGE of its labels: unstemmed, over sets of n-grams
    elif kind == "presumm_abs":
        name, data_name = "BertSumAbs", "BertSumAbsData"
        model |= {"activation": "gelu_tanh", "output_bias": True, "sentence_mark": "[unused2]"}  # between sentences
        model["decoder_layers"] = _number_of_layers(shapes, r"decoder\.decoder\.(\d+)\.")
        model["decoder_heads"] = options.heads
        model["decoder_inner_size"] = shapes["decoder.decoder.0.feed_forward.inner.weight"][0]
        model["decoding"] = {"beam_size": 5, "min_length": 50, "max_length": 200, "no_repeat_ngram": 3}
        model["decoding"] |= {"length_penalty": "gnmt", "alpha": 0.95}
        data |= {"max_source": num_positions}
    else:
        name, data_name = "MatchSum", "MatchSumData"
        if options.scorer is None:
            raise UserError("MatchSum chooses among sentences that another model proposes; give --scorer RUN")
        run = str(options.scorer.absolute())
        data["scorer"] = {"class_path": "precis.training.run_scorer.RunScorer", "init_args": {"run": run}}
    data["corpus"] = {"class_path": "datamodules.corpora.Hub", "init_args": {"name": "cnn_dailymail"}}
    return {
        "seed_everything": 1,
        "model": {"class_path": f"lightning_modules.{name}", "init_args": model},
        "data": {"class_path": f"datamodules.{data_name}", "init_args": data},
    }


def _number_of_layers(shapes: Mapping[str, Any], pattern: str) -> int:
    """Return the number of layers; the group in a pattern of names of weights captures the layer's number, from 0."""
    return 1 + max(int(match[1]) for name in shapes if (match := re.match(pattern, name)))


def _write_run_folder(
    folder: Path, config: dict[str, Any], state: Mapping[str, Tensor], kind: Kind, source: Path
) -> None:
    """Write a run folder with weights `state` from `source`; a `UserError` if a model of `config` has other shapes."""
    module, data = build(config)
    data.tokenizer = data.tokenizer_type.of_checkpoint(data.checkpoint)  # `checkpoint` names the pretrained encoder
    module.set_tokenizer(data.tokenizer)
    if kind == "presumm_abs":  # the only kind that generates: its begin and end symbols differ from the suite's
        state = _with_symbols_of(data.tokenizer, state)
    for name, (shape, expected_shape) in mismatched_shapes(state, module.state_dict()).items():
        problem = f"{name} is {shape} in the file, and {expected_shape} in a model over {data.checkpoint}"
        raise UserError(f"{source}: {problem}; give the --encoder that it was trained with")
    module.load_state_dict(state)
    content: dict[str, Any] = {"state_dict": module.state_dict(), "global_step": 0, "epoch": 0}  # Lightning's keys
    module.on_save_checkpoint(content)  # adds the tokenizer's state
    (folder / "checkpoints").mkdir()
    torch.save(content, folder / "checkpoints" / "best.ckpt")
    data.save_tokenizer(folder / "text")
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    imported = {"file": source.name, "sha256": file_digest(source), "kind": kind}
    record = environment() | {"seed": None, "imported": imported}
    (folder / "environment.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _with_symbols_of(tokenizer: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Swap decoder rows, so that the suite's begin and end tokens have those of PreSumm's; return all weights."""
    names = ("decoder.embedding.weight", "decoder.output_bias")  # the encoder's embedding is separate and stays
    swapped = {name: state[name].clone() for name in names if name in state}
    for token, symbol in _SUMMARY_TOKENS.items():  # symbol: attribute with the id of the suite's token
        token_id = tokenizer.backend.token_to_id(token)
        if token_id is None:
            raise UserError(f"the tokenizer has no {token}, which ends PreSumm's summaries; give its --encoder")
        pair = [token_id, getattr(tokenizer, symbol)]
        for weight in swapped.values():
            weight[pair] = weight[pair[::-1]]  # swaps the two rows
    return {**state, **swapped}
