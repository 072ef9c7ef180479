"""Pretrained summarizers of Hugging Face: encoder-decoders, chat models, and models that continue a text."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from datamodules.batch import Batch, groups_by_length
from datamodules.corpora.corpus import Corpus, as_document, build_documents
from datamodules.documents import Document, UserError
from lightning_modules.summarizer import Summarizer, Summary
from precis.summarizing.generation import (
    DEFAULT_LENGTH,
    FIXED,
    OTHER_NAME,
    SEPARATOR,
    Generated,
    Generator,
    context_window,
    load_pretrained,
    positions,
)
from precis.summarizing.prompts import answer_text, check_fields, fill, read_prompt, sentences_of
from precis.summarizing.summary_options import PretrainedOptions

CHAT_PROMPT = "three_sentences"
CHAT_LENGTH = 512  # tokens of an answer, thoughts included
# Radford et al. 2019: a language model summarizes what stands before these letters.
CONTINUED_PROMPT = "{document}\n\nTL;DR:"
PARAGRAPH_END = "\n\n"  # ends the summary in a continuation


class Answer(NamedTuple):
    """What a model wrote about a document."""

    id: str  # id of the document
    text: str  # the summary; those of several windows on a line each
    windows: int  # number of parts in which the document was read
    source_tokens: tuple[int, int]  # number of tokens that were read, and of all tokens
    summary_tokens: int  # number of generated tokens
    stopped: bool  # whether a summary ended because of its maximum length


@dataclass
class TextBatch(Batch):
    """Documents as they are, for a model with a tokenizer of its own."""

    documents: list[Document]


@dataclass(frozen=True)
class TextDocuments:
    """The documents of a corpus in batches, as `HuggingFaceSummarizer` reads them; names as in `SummarizationData`."""

    corpus: Corpus | None  # the documents, as its split "test"
    cache_dir: str | Path
    eval_batch_size: int = 16
    on_bad_record: str = "raise"
    language: str = "en"

    def documents(self, split: str) -> Dataset:
        """Return the documents of a split as a table."""
        options = {"on_bad_record": self.on_bad_record, "language": self.language}
        return build_documents(self.corpus, split, Path(self.cache_dir), **options)

    def with_corpus(self, corpus: Corpus, cache_dir: Path, eval_batch_size: int) -> Self:
        """Return the same over other documents."""
        return replace(self, corpus=corpus, cache_dir=cache_dir, eval_batch_size=eval_batch_size)

    def test_dataloader(self) -> DataLoader:
        """Return batches of test documents in order."""
        return DataLoader(self.documents("test"), batch_size=self.eval_batch_size, collate_fn=self._collate)

    @staticmethod
    def _collate(rows: list[dict[str, Any]]) -> TextBatch:
        documents = list(map(as_document, rows))
        return TextBatch([document.id for document in documents], [d.references for d in documents], documents)


class HuggingFaceSummarizer:
    """A pretrained model of Hugging Face that summarizes without training.

    An encoder-decoder reads the document, after the prefix of its task. A chat model reads a prompt in its chat
    template, and any other decoder continues the document and "TL;DR:". Generation settings are those of the model's
    card, its task "summarization" included, without sampling.

    Args:
        name: name on the hub, which is downloaded once, or folder.
        options: how it reads and writes.

    Raises:
        UserError: if there is no such model, or it cannot do what the options ask.
    """

    scored = Summarizer.scored

    def __init__(self, name: str, options: PretrainedOptions = PretrainedOptions()) -> None:
        self.name, self.options, self.language = name, options, options.language
        model, tokenizer = load_pretrained(name, options.dtype, options.device)
        self.is_chat = not model.config.is_encoder_decoder and bool(tokenizer.chat_template)
        task = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
        self.template = self._template(task.get("prefix") or getattr(model.config, "prefix", None) or "", model)
        self.generator = Generator(model, tokenizer, self._card_settings(task, model))
        self.generator.change(options.generation)
        self._check_positions()

    def _template(self, prefix: str, model: Any) -> str:
        """Return the text with {document} that the model reads."""
        prompt, is_decoder = self.options.prompt, not model.config.is_encoder_decoder
        if self.options.source_prefix is not None and (is_decoder or prompt is not None):
            raise UserError(f"--source_prefix: {self.name} reads a prompt; leave it out, or change --prompt")
        if prompt is None and is_decoder:
            return read_prompt(CHAT_PROMPT) if self.is_chat else CONTINUED_PROMPT
        if prompt is None:
            return (prefix if self.options.source_prefix is None else self.options.source_prefix) + "{document}"
        template = prompt if "{document}" in prompt else read_prompt(prompt)
        check_fields(prompt, template, {"document": True, "n": False, "query": False})
        return template

    def _card_settings(self, task: Mapping[str, Any], model: Any) -> dict[str, Any]:
        """Return the settings of the task, which older checkpoints keep in their config, and a length if none says."""
        names = vars(model.generation_config).keys() - FIXED
        settings = {name: value for name, value in task.items() if name in names}
        limits = model.generation_config.to_dict() | settings
        if model.config.is_encoder_decoder:
            if not (limits.get("max_length") or limits.get("max_new_tokens")):
                settings["max_new_tokens"] = min(DEFAULT_LENGTH, positions(model, "decoder") or DEFAULT_LENGTH)
        elif not limits.get("max_new_tokens"):
            settings["max_new_tokens"] = CHAT_LENGTH if self.is_chat else DEFAULT_LENGTH
        return settings

    @property
    def max_source(self) -> int | None:
        """Maximum number of input tokens, special tokens and prompt included; None for no limit."""
        window = context_window(self.generator.model, self.generator.tokenizer)
        if window is not None and self.generator.is_decoder_only:
            window -= self.generator.max_new_tokens  # prompt and answer share the positions
        return window if self.options.max_source is None else self.options.max_source

    def _check_positions(self) -> None:
        """Check that the model has enough positions for its inputs and outputs."""
        read, written = (positions(self.generator.model, part) for part in ("encoder", "decoder"))
        limit, length = self.max_source, self.generator.max_new_tokens
        if written and length > written:
            remedy = f"give --generation.max_new_tokens {written} or less"
            raise UserError(f"summaries of {length} tokens: the model has {written} positions; {remedy}")
        if limit is not None and limit < len(self.encode("")) + 2:
            raise UserError(f"--max_source {limit}: no room for a document beside the prompt and special tokens")
        if read and limit is not None and limit + length * self.generator.is_decoder_only > read:
            beside = f" for it and {length} tokens of the summary" if self.generator.is_decoder_only else ""
            raise UserError(f"--max_source {limit}: the model has {read} positions{beside}; give at most as many")

    def to(self, device: torch.device | str) -> Self:
        """Leave the model on the device that its options name; the commands move trained models with this method."""
        return self

    @contextmanager
    def changed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Replace generation settings, or `DecodingOptions`, within a context; a `UserError` if refused."""
        generator, before = self.generator, self.generator.model.generation_config
        earlier = {n: value for n, value in self.options.generation.items() if OTHER_NAME.get(n) not in settings}
        try:
            generator.change(earlier | dict(settings))
            self._check_positions()
            yield
        finally:
            generator.model.generation_config = before

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the ids of a text in its prompt, with special tokens."""
        prompt = fill(self.template, {"document": text})
        if self.is_chat:
            messages = [{"role": "user", "content": prompt}]
            options = {"add_generation_prompt": True, "return_dict": True}
            encoded: Any = self.generator.tokenizer.apply_chat_template(messages, **options)
        else:
            encoded = self.generator.tokenizer(prompt, verbose=False, **options)
        return encoded["input_ids"]

    def sources(self, document: Document) -> tuple[list[list[int]], int]:
        """Return the inputs for a document, lists of token ids, and the number of tokens that they should have."""
        sentences = document.sentences
        if self.generator.separator is not None:
            sentences = [sentence for part in document.parts for sentence in (*part[:-1], f"{part[-1]} {SEPARATOR}")]
        texts = [" ".join(sentences)]
        if self.options.long_documents != "truncate" and self.max_source is not None:
            texts = self._windows(sentences, self.max_source)
        inputs = [self.encode(text) for text in texts]
        total = sum(map(len, inputs))
        if self.max_source is not None:
            limit = self.max_source
            inputs = [ids if len(ids) <= limit else self._truncated(text, limit) for text, ids in zip(texts, inputs)]
        return inputs, total

    def _windows(self, sentences: list[str], max_source: int) -> list[str]:
        """Return consecutive sentences in texts of at most `max_source` tokens in their prompt, or of one sentence."""
        windows: list[str] = []

        def tokens(count: int) -> int:
            return len(self.encode(" ".join(sentences[:count])))

        while sentences:  # few texts are tokenized: a window may hold hundreds of sentences
            count = max(1, bisect_right(range(1, len(sentences) + 1), max_source, key=tokens))
            windows.append(" ".join(sentences[:count]))
            sentences = sentences[count:]
        return windows or [""]

    def _truncated(self, text: str, max_source: int) -> list[int]:
        """Return the ids of the longest beginning of a text that fits with its prompt."""
        if not self.is_chat and self.template.endswith("{document}"):
            return self.encode(text, truncation=True, max_length=max_source)
        sizes = range(len(text) + 1)
        size = bisect_right(sizes, max_source, key=lambda size: len(self.encode(text[:size]))) - 1
        return self.encode(text[:size])

    def summarize(self, batch: TextBatch) -> list[Summary]:
        """Return a summary of each document; `extra` has the numbers of windows, and of tokens read and in total."""
        answers = {answer.id: answer for group in self.answers(batch.documents) for answer in group}
        summaries = []
        for document in batch.documents:
            answer = answers[document.id]
            extra = {"windows": answer.windows, "source_tokens": list(answer.source_tokens)}
            sentences = sentences_of(answer.text, self.language)
            summaries.append(Summary(document.id, sentences, document.references, extra=extra))
        return summaries

    def answers(self, documents: list[Document]) -> Iterator[list[Answer]]:
        """Yield the answers about some documents after each batch, which has inputs of similar length."""
        first_pass = {}
        for answers in self._one_pass(documents):
            if self.options.long_documents == "second_pass":
                first_pass |= {answer.id: answer for answer in answers if answer.windows > 1}
            yield [answer for answer in answers if answer.id not in first_pass]
        joined = [Document(answer.id, [sentences_of(answer.text, self.language)]) for answer in first_pass.values()]
        for answers in self._one_pass([document for document in joined if document.sentences]):
            read = [first_pass.pop(second.id) for second in answers]
            # what was read is what the first pass read
            yield [b._replace(windows=a.windows, source_tokens=a.source_tokens) for a, b in zip(read, answers)]
        yield list(first_pass.values())  # those whose windows had empty summaries

    def _one_pass(self, documents: list[Document]) -> Iterator[list[Answer]]:
        """Yield answers, as soon as all windows of a document are summarized."""
        sources = [self.sources(document) for document in documents]
        # All windows of all documents, batched by length.
        places = [(number, window) for number, (windows, _) in enumerate(sources) for window in range(len(windows))]
        prompts = [prompt for windows, _ in sources for prompt in windows]
        outputs: list[dict[int, Generated]] = [{} for _ in documents]
        for group in groups_by_length([len(prompt) for prompt in prompts], self.options.batch_tokens):
            finished = []
            for index, output in zip(group, self.generator.generate([prompts[index] for index in group])):
                number, window = places[index]
                outputs[number][window] = output
                windows, total = sources[number]
                if len(outputs[number]) < len(windows):
                    continue
                ordered = [outputs[number][place] for place in range(len(windows))]
                finished.append(
                    Answer(
                        id=documents[number].id,
                        text="\n".join(self._text(output) for output in ordered),
                        windows=len(windows),
                        source_tokens=(sum(map(len, windows)), total),
                        summary_tokens=sum(output.tokens for output in ordered),
                        stopped=any(map(self._is_cut_off, ordered)),
                    )
                )
            yield finished

    def _text(self, output: Generated) -> str:
        """Return the summary in an output: no thoughts of a chat model, and the first paragraph of a continuation."""
        if not self.generator.is_decoder_only:
            return output.text
        text = answer_text(output.text)
        return text if self.is_chat else text.split(PARAGRAPH_END)[0]

    def _is_cut_off(self, output: Generated) -> bool:
        """Return whether a summary ends because of its maximum length; a continuation may go on after the summary."""
        is_continuation = self.generator.is_decoder_only and not self.is_chat
        return output.stopped and not (is_continuation and PARAGRAPH_END in output.text)


def how_read(summary: Summary, long_documents: str) -> str | None:
    """Return what a reader should know about a long document; None if it was read as a whole."""
    read, total = summary.extra.get("source_tokens", (0, 0))
    windows = summary.extra.get("windows", 1)
    if windows == 1:
        return f"first {read:,} of {total:,} tokens were read" if read < total else None
    part = f" ({read:,} of {total:,} tokens)" if read < total else ""
    again = ", and the result summarized again" if long_documents == "second_pass" else ""
    return f"read in {windows} windows{part}, whose summaries were joined{again}"
