"""`precis baseline hf`: summaries by a pretrained sequence-to-sequence model of Hugging Face."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datasets import Dataset
from jsonargparse import ArgumentParser, Namespace
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers import __version__ as transformers_version

from datamodules.batch import groups_by_length, pools
from datamodules.corpora.corpus import as_document
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import Document, UserError
from datamodules.text.lines import counted
from datamodules.truncation import TruncationRow, truncation_line
from precis.baselines.answers_file import Answers, answers_path, open_answers
from precis.baselines.generation import Generated, Generator, context_window, load_pretrained, positions, weights_digest
from precis.baselines.input_documents import (
    add_document_arguments,
    add_model_arguments,
    documents_digest,
    read_documents,
)
from precis.baselines.output_files import name_documents, signature, write_predictions

POOL = 256  # documents that are tokenized, and batched by length, together
DEFAULT_LENGTH = 128  # tokens of a summary, where neither the model nor the command line says anything
# Generation settings that affect no summary, or belong to the vocabulary: not in the signature.
ASIDE = ("output_", "return_", "use_cache", "pad_", "bos_", "eos_", "decoder_start_", "forced_eos_")
LengthMode = Literal["truncate", "windows"]


def hugging_face(arguments: list[str]) -> None:
    """`precis baseline hf --checkpoint NAME_OR_FOLDER`: summaries by any sequence-to-sequence model of Hugging Face.

    The model's own generation settings are used, those of its task "summarization" included; --generation.NAME VALUE
    replaces one. A killed command continues when it is run again.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    target = Path(options.out)
    answers_file = answers_path(target)
    system = load_summarizer(options)
    documents = read_documents(parser, options)
    settings = system.settings | {"split": options.split, "documents": documents_digest(map(as_document, documents))}
    with open_answers(answers_file, settings) as answers:
        _summarize(system, documents, answers, options.batch_tokens)
        _write(target, documents, answers, settings, options.split)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis baseline hf", description=hugging_face.__doc__, exit_on_error=False)
    parser.add_argument("--checkpoint", type=str, required=True, help="name on the hub (downloaded) or folder")
    add_document_arguments(parser)
    parser.add_argument(
        "--generation", type=dict[str, Any], default={},
        help="generation settings that replace the model's, such as --generation.num_beams 8",
    )  # fmt: skip
    parser.add_argument(
        "--source_prefix", type=str | None, default=None,
        help="text before each document; by default that of the model's task, such as `summarize: ` of T5",
    )  # fmt: skip
    parser.add_argument(
        "--max_source", type=int | None, default=None, help="maximum number of input tokens; by default all positions"
    )
    parser.add_argument(
        "--long_documents", type=LengthMode, default="truncate",
        help="truncate after max_source tokens, or summarize windows of whole sentences and join their summaries",
    )  # fmt: skip
    add_model_arguments(parser)
    return parser


class PretrainedSummarizer(NamedTuple):
    """A pretrained summarizer and how it reads documents.

    Attributes:
        generator: model, tokenizer and generation settings.
        prefix: text before each source.
        max_source: maximum number of input tokens, special tokens included; None for no limit.
        long_documents: what is done with longer documents.
        settings: all that its summaries depend on, as values of JSON.
    """

    generator: Generator
    prefix: str
    max_source: int | None
    long_documents: LengthMode
    settings: dict[str, Any]

    def sources(self, document: Document) -> tuple[list[list[int]], int]:
        """Return the inputs for a document, lists of token ids, and the number of tokens that they should have."""
        tokenizer = self.generator.tokenizer
        texts = [" ".join(document.sentences)]
        if self.long_documents == "windows" and self.max_source is not None:
            texts = split_windows(tokenizer, self.prefix, document.sentences, self.max_source)
        rows, total = [], 0
        for text in texts:
            row = encode(tokenizer, self.prefix + text)
            total += len(row)
            if self.max_source is not None and len(row) > self.max_source:
                row = encode(tokenizer, self.prefix + text, truncation=True, max_length=self.max_source)
            rows.append(row)
        return rows, total


def encode(tokenizer: PreTrainedTokenizerBase, text: str, **options: Any) -> list[int]:
    """Return the ids of a text with special tokens."""
    return tokenizer(text, verbose=False, **options)["input_ids"]


def split_windows(tokenizer: PreTrainedTokenizerBase, prefix: str, sentences: list[str], max_source: int) -> list[str]:
    """Return consecutive sentences in texts of at most `max_source` tokens, prefix included, or of one sentence."""
    windows: list[list[str]] = [[]]
    for sentence in sentences:
        text = " ".join([*windows[-1], sentence])
        if windows[-1] and len(encode(tokenizer, prefix + text)) > max_source:
            windows.append([])
        windows[-1].append(sentence)
    return [" ".join(window) for window in windows]


def load_summarizer(options: Namespace) -> PretrainedSummarizer:
    """Load the model that the options name.

    Raises:
        UserError: if there is no such model, or it cannot do what the options ask.
    """
    other = "precis baseline chat takes models that continue a prompt"
    model, tokenizer = load_pretrained(AutoModelForSeq2SeqLM, options.checkpoint, options.dtype, options.device, other)
    prefix, settings = _task_settings(model, options.generation)
    generator = Generator(model, tokenizer, settings)
    max_source = context_window(model, tokenizer) if options.max_source is None else options.max_source
    _check_positions(generator, max_source)
    prefix = prefix if options.source_prefix is None else options.source_prefix
    settings = {
        "system": "hf",
        "checkpoint": options.checkpoint,
        "weights": weights_digest(options.checkpoint, model),
        # the settings that differ from the defaults of transformers, without its version
        "generation": {
            name: value
            for name, value in model.generation_config.to_diff_dict().items()
            if not name.startswith(("_", "transformers_"))
        },
        "source_prefix": prefix,
        "max_source": max_source,
        "long_documents": options.long_documents,
        "dtype": options.dtype,
        "transformers": transformers_version,
    }
    return PretrainedSummarizer(generator, prefix, max_source, options.long_documents, settings)


def _task_settings(model: PreTrainedModel, changes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return prefix and generation settings of summarization that older checkpoints, such as T5, keep in their config.

    `changes` replace settings. If nothing limits the length of the outputs, `DEFAULT_LENGTH` and the positions do.
    """
    task = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
    prefix = task.get("prefix") or getattr(model.config, "prefix", None) or ""
    settings = {name: value for name, value in task.items() if name in vars(model.generation_config)}
    if "max_length" in changes:
        settings.pop("max_new_tokens", None)  # it would take precedence over `max_length`
    settings |= changes
    limits = model.generation_config.to_dict() | settings
    if not (limits.get("max_length") or limits.get("max_new_tokens")):
        settings["max_new_tokens"] = min(DEFAULT_LENGTH, positions(model, "decoder") or DEFAULT_LENGTH)
    return prefix, settings


def _check_positions(generator: Generator, max_source: int | None) -> None:
    """Check that the model has enough positions for its inputs and outputs."""
    read, written = (positions(generator.model, part) for part in ("encoder", "decoder"))
    if max_source is not None and max_source < 4:
        raise UserError(f"--max_source {max_source}: no room for a document beside the special tokens; give more")
    if read and max_source is not None and max_source > read:
        raise UserError(f"--max_source {max_source}: the model has {read} positions; give at most as many")
    if written and generator.max_new_tokens > written:
        raise UserError(
            f"summaries of {generator.max_new_tokens} tokens: the model has {written} positions; "
            f"give --generation.max_new_tokens {written} or less"
        )


def _summarize(system: PretrainedSummarizer, documents: Dataset, answers: Answers, batch_tokens: int) -> None:
    """Generate the missing answers, batch by batch."""
    missing = [index for index, name in enumerate(documents["id"]) if name not in answers.rows]
    with progress_bar() as progress:
        task = progress.add_task("summaries", total=len(documents), completed=len(documents) - len(missing))
        for indices in pools(missing, POOL):
            pool = [as_document(row) for row in documents.select(indices)]
            for rows in _pool_answers(system, pool, batch_tokens):
                answers.add(rows)
                progress.advance(task, len(rows))


def _pool_answers(
    system: PretrainedSummarizer, pool: list[Document], batch_tokens: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the answers of some documents after each batch, as soon as all windows of a document are summarized."""
    sources = [system.sources(document) for document in pool]
    # All windows of all documents, batched by length.
    places = [(document, window) for document, (windows, _) in enumerate(sources) for window in range(len(windows))]
    prompts = [prompt for windows, _ in sources for prompt in windows]
    outputs: list[dict[int, Generated]] = [{} for _ in pool]
    for group in groups_by_length([len(prompt) for prompt in prompts], batch_tokens):
        finished = []
        for index, output in zip(group, system.generator.generate([prompts[index] for index in group])):
            document, window = places[index]
            outputs[document][window] = output
            windows, total = sources[document]
            if len(outputs[document]) < len(windows):
                continue
            ordered = [outputs[document][number] for number in range(len(windows))]
            finished.append({
                "id": pool[document].id,
                "text": "\n".join(output.text for output in ordered),
                "windows": len(windows),
                "source_tokens": [sum(map(len, windows)), total],  # tokens that were read, and all tokens
                "summary_tokens": sum(output.tokens for output in ordered),
                "stopped": any(output.stopped for output in ordered),
            })  # fmt: skip
        yield finished


def _write(target: Path, documents: Dataset, answers: Answers, settings: dict[str, Any], split: str) -> None:
    """Write predictions and report what was cut off."""
    rows = [answers.rows[name] for name in documents["id"]]
    truncated = [row["id"] for row in rows if row["source_tokens"][0] < row["source_tokens"][1]]
    stopped = [row["id"] for row in rows if row["stopped"]]
    empty = [row["id"] for row in rows if not row["text"].strip()]
    read, total = (sum(row["source_tokens"][index] for row in rows) for index in (0, 1))
    counts = {
        "truncated": len(truncated),
        "source_tokens": [read, total],
        "windows": sum(row["windows"] for row in rows),
        "stopped": len(stopped),
        "empty": len(empty),
    }
    generation = settings["generation"]
    signed = signature(
        "hf",
        {name: settings[name] for name in ("checkpoint", "weights", "max_source", "long_documents", "dtype")}
        | {name: generation[name] for name in sorted(generation) if not name.startswith(ASIDE)}
        | {"documents": settings["documents"], "transformers": settings["transformers"]},
    )
    record = {"split": split, "documents": len(rows), "signature": signed, "settings": settings, "counts": counts}
    write_predictions(target, map(as_document, documents), lambda name: answers.rows[name]["text"], record)
    row = TruncationRow(
        split=split, counted="source tokens", limit=f"max_source {settings['max_source']}", documents=len(rows),
        documents_cut=len(truncated), total=total, left_out=total - read, examples=" ".join(truncated[:3]),
    )  # fmt: skip
    notes = [
        truncation_line([row]),
        name_documents((row["id"] for row in rows if row["windows"] > 1), "documents in several windows"),
        name_documents(stopped, "summaries reach the maximum length"),
        name_documents(empty, "empty summaries"),
        signed,
    ]
    print(f"hf: {counted(len(rows), 'summary')} in {target}; score them with precis evaluate {target}")
    print(*filter(None, notes), sep="\n")
