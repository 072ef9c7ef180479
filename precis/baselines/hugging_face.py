"""`precis baseline hf` and `precis test --checkpoint`: summaries by a pretrained model of Hugging Face, and scores."""

from pathlib import Path
from typing import Any

from datasets import Dataset
from jsonargparse import ArgumentParser, Namespace
from transformers import __version__ as transformers_version

from datamodules.batch import pools
from datamodules.corpora.corpus import as_document
from datamodules.corpora.parallel import progress_bar
from datamodules.truncation import TruncationRow, truncation_line
from precis.baselines import baseline_files
from precis.baselines.answers_file import Answers, answers_path, open_answers
from precis.summarizing.generation import weights_digest
from precis.summarizing.hugging_face import HuggingFaceSummarizer
from precis.summarizing.summary_options import PretrainedOptions, read_options

POOL = 256  # documents that are tokenized, and batched by length, together
# Prefixes of generation settings that affect no summary, or belong to the vocabulary: not in the signature.
NOT_IN_SIGNATURE = ("output_", "return_", "use_cache", "pad_", "bos_", "eos_", "decoder_start_", "forced_eos_")


def hugging_face(arguments: list[str]) -> None:
    """`precis baseline hf --checkpoint NAME_OR_FOLDER`: summaries by any summarizer or chat model of Hugging Face.

    The model's own generation settings are used, with its `task_specific_params` for summarization; --generation.NAME
    VALUE replaces one. A killed command continues when it is run again.
    """
    write_summaries(_parser("precis baseline hf", hugging_face.__doc__, needs_out=True), arguments)


def score_pretrained(arguments: list[str]) -> None:
    """`precis test --checkpoint NAME_OR_FOLDER --corpus CORPUS ...`: a model of Hugging Face summarizes and is scored.

    The same as `precis baseline hf` and then `precis evaluate`; without --out, the files are named after the model.
    """
    from precis.evaluation.evaluate import evaluate

    parser = _parser("precis test", score_pretrained.__doc__, needs_out=False)
    evaluate([str(write_summaries(parser, arguments))])


def write_summaries(parser: ArgumentParser, arguments: list[str]) -> Path:
    """Write a model's summaries for a command line, reusing those of a command that was killed; return their file."""
    options = parser.parse_args(baseline_files.expand_corpus_file(arguments))
    target = Path(options.out or f"{Path(options.checkpoint).name}.jsonl")
    model = HuggingFaceSummarizer(options.checkpoint, read_options(PretrainedOptions, options))
    documents = baseline_files.read_documents(parser, options)
    model.language = options.language  # with --run, `read_documents` has set it to the language of the run
    settings = settings_of(model) | {"split": options.split}
    settings["documents"] = baseline_files.documents_digest(map(as_document, documents))
    with open_answers(answers_path(target), settings) as answers:
        _summarize(model, documents, answers)
        _write(target, documents, answers, settings, options)
    return target


def _parser(command: str, description: str, needs_out: bool) -> ArgumentParser:
    parser = ArgumentParser(prog=command, description=description, exit_on_error=False)
    parser.add_argument("--checkpoint", type=str, required=True, help="name on the hub (downloaded) or folder")
    baseline_files.add_document_arguments(parser, needs_out)
    parser.add_class_arguments(PretrainedOptions, None, skip={"language"})  # already added for the documents
    parser.set_defaults(long_documents="truncate")  # as published scores are computed
    return parser


def settings_of(model: HuggingFaceSummarizer) -> dict[str, Any]:
    """Return all that the summaries of a model depend on, as values of JSON."""
    generation = model.generator.model.generation_config.to_diff_dict()  # all that differs from the defaults
    internal = ("_", "transformers_")  # prefixes of entries that are not settings, such as the library's version
    return {
        "system": "hf",
        "checkpoint": model.name,
        "weights": weights_digest(model.name, model.generator.model),
        "generation": {name: value for name, value in generation.items() if not name.startswith(internal)},
        "prompt": model.template,
        "max_source": model.max_source,  # tokens that the model reads at once; None: no limit
        "long_documents": model.options.long_documents,
        "language": model.language,  # whose rules divide summaries of windows (parts of a long document) into sentences
        "dtype": model.options.dtype,
        "transformers": transformers_version,
    }


def _summarize(model: HuggingFaceSummarizer, documents: Dataset, answers: Answers) -> None:
    """Generate the summaries that the file of answers lacks, and add them to it after each batch."""
    missing = [index for index, name in enumerate(documents["id"]) if name not in answers.by_id]
    with progress_bar() as progress:
        task = progress.add_task("summaries", total=len(documents), completed=len(documents) - len(missing))
        for indices in pools(missing, POOL):  # lists of POOL indices; `model.answers` makes batches by length
            for batch in model.answers(list(map(as_document, documents.select(indices)))):
                answers.add(answer._asdict() for answer in batch)
                progress.advance(task, len(batch))


def _write(target: Path, documents: Dataset, answers: Answers, settings: dict[str, Any], options: Namespace) -> None:
    """Write summaries and how they were made to files, and print which documents and summaries were cut off."""
    generated = [answers.by_id[name] for name in documents["id"]]  # in the order of the documents
    token_counts = [answer["source_tokens"] for answer in generated]  # (read by the model, total) of each document
    truncated = [answer["id"] for answer, (read, total) in zip(generated, token_counts) if read < total]
    divided = [answer["id"] for answer in generated if answer["windows"] > 1]
    stopped = [answer["id"] for answer in generated if answer["stopped"]]  # at the maximum length of a summary
    empty = [answer["id"] for answer in generated if not answer["text"].strip()]
    texts = {answer["id"]: answer["text"] for answer in generated}
    read = sum(read for read, _ in token_counts)
    total = sum(total for _, total in token_counts)
    counts = {
        "truncated": len(truncated),
        "source_tokens": [read, total],
        "windows": sum(answer["windows"] for answer in generated),  # parts of documents, summarized one by one
        "stopped": len(stopped),
        "empty": len(empty),
    }
    generation = settings["generation"]
    signed = {name: settings[name] for name in ("checkpoint", "weights", "max_source", "long_documents", "dtype")}
    signed |= {name: generation[name] for name in sorted(generation) if not name.startswith(NOT_IN_SIGNATURE)}
    signed |= {name: settings[name] for name in ("documents", "transformers")}  # the signature has no other settings
    signature = baseline_files.signature("hf", signed)
    record = {"split": options.split, "signature": signature, "settings": settings, "counts": counts}
    truncation = TruncationRow(
        split=options.split, counted="source tokens", limit=f"max_source {settings['max_source']}",
        documents=len(generated), documents_cut=len(truncated), total=total, left_out=total - read,
        examples=" ".join(truncated[:3]),
    )  # fmt: skip
    notes = [
        truncation_line([truncation]),
        baseline_files.name_documents(divided, "documents in several windows"),
        baseline_files.name_documents(stopped, "summaries reach the maximum length"),
        baseline_files.name_documents(empty, "empty summaries"),
    ]
    baseline_files.write_predictions(target, documents, texts, record, notes, options.language)
