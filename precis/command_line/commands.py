"""Options of `summarize`, `corpus`, `report` and `export`, checked before torch and Lightning are imported."""

import os
import shlex
import sys
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, Namespace

from datamodules.atomic_write import appearing_folder
from datamodules.corpora.corpus import Corpus
from datamodules.corpora.files import Files
from datamodules.corpora.texts import Texts
from datamodules.documents import UserError
from datamodules.text.lines import printable_line
from precis.config.load_classes import add_corpus_arguments
from precis.config.run_config import read_config
from precis.config.shipped import LIGHT, checked_name
from precis.files.data_files import check_outputs
from precis.files.field_names import describe_value, first_row, guess_file
from precis.files.texts import collect_texts, documents_of, is_records
from precis.runs.prediction_files import find_predictions
from precis.summarizing.summary_options import LengthBudget, PretrainedOptions, read_options


def summarize(arguments: list[str]) -> None:
    """`precis summarize [FILE | FOLDER | TEXT ...]`: print a summary of each document.

    The model is one of the suite (--model, by default `extractive`, in other languages than English `lexrank`), a run
    (--run), or any summarizer or chat model of Hugging Face (--checkpoint, its folder or name).
    """
    parser = ArgumentParser(prog="precis summarize", description=summarize.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("--model", type=str | None, default=None, help="model of the suite: extractive (sentences of "
                        "the text, by MiniLM), small (the same without MiniLM), docstring (for Python docstrings), or "
                        "lexrank (sentences of a text in any language, untrained)")  # fmt: skip
    add("--run", type=str | None, default=None, help="a run folder")
    add("--checkpoint", type=str | None, default=None, help="folder or name of a model of Hugging Face or an export")
    add(
        "inputs", nargs="*", type=str,
        help="text files, folders of .txt and .html files, one file of records (.jsonl, .csv, .parquet), or a text; "
        "standard input if none, or for -",
    )  # fmt: skip
    add("--document", type=str | None, default=None, help="field of the text of records, by default `document`")
    add("--on_bad_record", type=Literal["raise", "skip"], default="raise", help="what to do about invalid records")
    add("--batch_size", type=int, default=16, help="number of documents summarized together")
    parser.add_class_arguments(LengthBudget, None)
    parser.add_class_arguments(PretrainedOptions, None)
    add("--json", type=bool, default=False, help="print one line of JSON per document instead of text")
    add("--mark", type=bool, default=False, help="put [brackets] around copied words; for extractive "
                        "models, show the document with [brackets] around selected sentences")  # fmt: skip
    add("--scores", type=bool, default=False, help="print the scores of sentences (extractive models)")
    add("--html", type=Path | None, default=None, help="HTML page with marked sentences (extractive models)")
    add("--heat_map", type=Path | None, default=None, help="PNG of attention between sentences (extractive models)")
    options = parser.parse_args(arguments)
    check_outputs(html=options.html, heat_map=options.heat_map)
    budget = read_options(LengthBudget, options)
    is_light = _choose_model(options)
    from precis.sharing.hub import find_run

    if (folder := find_run(options.checkpoint)) is not None:  # None for a model of Hugging Face
        read_config(folder)  # raises an error before the user types a text
    inputs = options.inputs
    if len(inputs) == 1 and os.path.isfile(inputs[0]) and is_records(Path(inputs[0])):  # the input may also be a text
        corpus: Corpus = Files(test=inputs[0], document=options.document or "document")
    elif options.document is not None:
        raise UserError("--document names a field of records; give a file of them (.jsonl, .csv, .parquet)")
    else:
        corpus = Texts(collect_texts(inputs))
    if is_light and isinstance(corpus, Texts):
        from precis.api.summaries import light_model, light_summaries
        from precis.summarizing.show_extraction import show_summaries

        model, documents = light_model(folder), documents_of(corpus)
        show_summaries(options, model, documents, light_summaries(model, documents, budget))
        return
    from precis.summarizing.summarizing import print_summaries

    print_summaries(options, corpus, budget)


def _choose_model(options: Namespace) -> bool:
    """Set `options.checkpoint` to the model, and print a default; return whether it works without Lightning."""
    chosen = [name for name in ("model", "run", "checkpoint") if options[name] is not None]  # options that name it
    if len(chosen) > 1:
        raise UserError(f"--{chosen[0]} and --{chosen[1]} both name a model; give one of them")
    if chosen in (["run"], ["checkpoint"]):
        options.checkpoint = options.run or options.checkpoint
        return False
    options.checkpoint = checked_name(options.model, options.language)
    if not chosen:
        english = "--model docstring, " if options.checkpoint in LIGHT else ""  # refused with --language
        others = f"{english}--run RUN or --checkpoint NAME for another"
        print(f"precis: by the model {options.checkpoint}, which selects sentences ({others})", file=sys.stderr)
    draws = options.html is not None or options.heat_map is not None  # which needs Lightning
    # options for models of Hugging Face only: the slow `load_model`, which imports Lightning, reports them as an error
    has_pretrained_options = read_options(PretrainedOptions, options) != PretrainedOptions()
    return options.checkpoint in LIGHT and not draws and not has_pretrained_options


def corpus(arguments: list[str]) -> None:
    """`precis corpus FILE`, or `precis corpus --corpus NAME ...`: counts, lengths and first examples of a corpus."""
    parser = ArgumentParser(prog="precis corpus", description=corpus.__doc__, exit_on_error=False)
    parser.add_argument("file", nargs="?", type=Path, help="file of records; its fields are guessed and explained")
    add_corpus_arguments(parser)
    parser.add_argument("--examples", type=int, default=2, help="number of documents to show per split")
    parser.add_argument("--json", type=bool, default=False, help="JSON instead of tables")
    options = parser.parse_args(arguments)
    if (options.file is None) == (options.corpus is None):  # both or neither
        raise UserError("precis corpus describes one corpus: give a file of records, or --corpus CORPUS ...")
    described_corpus = guess_corpus(options.file) if options.file else parser.instantiate_classes(options).corpus
    if not described_corpus.splits():
        raise UserError(f"{type(described_corpus).__name__} has no split; name a source, such as --corpus.train")
    from precis.command_line.describe_corpus import describe_corpus

    describe_corpus(described_corpus, options)


def guess_corpus(path: Path) -> Files:
    """Return a corpus with a file as split `train`; guess its fields by name and layout, and print them on stderr."""
    record = first_row(path)
    chosen, _ = guess_file(path)  # names of fields, or None
    roles = {chosen.document: "the document", chosen.summary: "the reference", chosen.id: "the id"}
    for name, value in record.items():
        role = f", {roles[name]}" if name in roles else ""
        print(f"{printable_line(name)}: {describe_value(value)}{role}", file=sys.stderr)
    options = "".join(f" --data.corpus.{name} {shlex.quote(str(value))}" for name, value in chosen.arguments().items())
    print(f"to train on it: --data.corpus Files --data.corpus.train {shlex.quote(str(path))}{options}", file=sys.stderr)
    return Files(train=str(path), **chosen.arguments())


def report(arguments: list[str]) -> None:
    """`precis report RUN`: ROUGE of lead-1 and of the run's predictions on the test split, and a few documents."""
    parser = ArgumentParser(prog="precis report", description=report.__doc__, exit_on_error=False)
    parser.add_argument("run", type=Path, help="a run folder with predictions.jsonl")
    parser.add_argument("--split", type=Literal["test", "val"], default="test", help="split of the predictions")
    parser.add_argument("--examples", type=int, default=5, help="number of documents to show")
    parser.add_argument("--language", type=str | None, default=None, help="ISO code; by default that of the run")
    options = parser.parse_args(arguments)
    predictions = find_predictions(options.run, options.split)
    from precis.runs.report import print_report  # a slow import, after the checks that do not need it

    print_report(options.run, predictions, options.split, options.examples, options.language)


def export(arguments: list[str]) -> None:
    """`precis export RUN --out FOLDER`: a model with its tokenizer and a model card, for `precis.load` and the hub.

    FOLDER has the weights (safetensors), config.yaml, text/ (tokenizer) and README.md. Where the network is one of
    transformers (RSTformer's LED, a pretrained PEGASUS) it also has what `from_pretrained(FOLDER)` loads; the
    pretrained encoder of an extractive model, of BertSumAbs and of GraphSum is in FOLDER/encoder.
    """
    parser = ArgumentParser(prog="precis export", description=export.__doc__, exit_on_error=False)
    add = parser.add_argument
    add("run", type=Path, help="a run folder")
    add("--out", type=Path, required=True, help="folder, created if needed")
    add("--checkpoint", type=Path | None, default=None, help="checkpoint of the run; the best one by default")
    add("--license", type=str | None, default=None, help="license of the weights, such as apache-2.0")
    compact_help = "matrices in 8 bits, without a frozen encoder and its tokenizer, which are then loaded by name"
    add("--compact", type=bool, default=False, help=compact_help)
    options = parser.parse_args(arguments)
    out = options.out
    if out.is_dir() and not any(out.iterdir()) and not out.samefile("."):  # paths refer to the working folder
        out.rmdir()  # an empty folder: `appearing_folder` creates it once its content is complete
    if out.exists():
        raise UserError(f"{out}: not empty, or the working folder; choose another folder")
    read_config(options.run)  # raises an error before slow imports
    from precis.sharing.export import write_export

    with appearing_folder(out) as building:
        write_export(options.run, building, options.checkpoint, options.license, out.name, options.compact)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
