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
from precis.summarizing import generation
from precis.summarizing.prompts import answer_text, check_fields, fill, read_prompt, sentences_of
from precis.summarizing.summary_options import PretrainedOptions

CHAT_PROMPT = "three_sentences"
CHAT_LENGTH = 512  # tokens of an answer, reasoning before it included
# Radford et al. 2019: a language model summarizes what stands before these letters.
CONTINUED_PROMPT = "{document}\n\nTL;DR:"
PARAGRAPH_END = "\n\n"  # ends the summary in a continuation


class Answer(NamedTuple):
    """What a model wrote about a document."""

    id: str  # id of the document
    text: str  # the summary, or the summaries of several windows, one per line
    windows: int  # number of windows: consecutive parts of the document that were read separately
    source_tokens: tuple[int, int]  # number of tokens that were read, and number of all tokens
    summary_tokens: int  # number of generated tokens
    stopped: bool  # whether a summary ended because of its maximum length


@dataclass
class TextBatch(Batch):
    """Documents as texts, for a model that has its own tokenizer."""

    documents: list[Document]


@dataclass(frozen=True)
class TextDocuments:
    """A corpus in batches of untokenized texts for pretrained models and LexRank; methods as in `SummarizationData`."""

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
        """Return a copy with another corpus, cache folder and batch size."""
        return replace(self, corpus=corpus, cache_dir=cache_dir, eval_batch_size=eval_batch_size)

    def test_dataloader(self) -> DataLoader:
        """Return batches (`TextBatch`) of test documents in order."""
        return DataLoader(self.documents("test"), batch_size=self.eval_batch_size, collate_fn=self._collate)

    @staticmethod
    def _collate(rows: list[dict[str, Any]]) -> TextBatch:  # each row of the table is a document
        documents = list(map(as_document, rows))
        return TextBatch([d.id for d in documents], [d.references for d in documents], documents)


class HuggingFaceSummarizer:
    """A pretrained model of Hugging Face that summarizes without training.

    An encoder-decoder reads the document, after the prefix of its task. A chat model reads a prompt in its chat
    template, and any other decoder continues the document and "TL;DR:". Generation settings are those of the model's
    config (for generation, and for the task "summarization"), without sampling.

    Args:
        name: name on the hub, which is downloaded once, or folder.
        options: how the model reads documents and writes summaries.

    Raises:
        UserError: if there is no such model, or it cannot do what the options ask.
    """

    scored = Summarizer.scored  # method that adds ROUGE scores to summaries

    def __init__(self, name: str, options: PretrainedOptions = PretrainedOptions()) -> None:
        """Load the model, and let the options replace settings of its config."""
        self.name = name
        self.options = options
        self.language = options.language
        model, tokenizer = generation.load_pretrained(name, options.dtype, options.device)
        self.is_chat = not model.config.is_encoder_decoder and bool(tokenizer.chat_template)
        # T5 and BART have settings for the task in their config, such as the prefix "summarize: ".
        task = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
        self.template = self._template(task.get("prefix") or getattr(model.config, "prefix", None) or "", model)
        self.generator = generation.Generator(model, tokenizer, self._task_settings(task, model))
        self.generator.change(options.generation)  # replace settings of the config
        self._check_positions()

    def _template(self, prefix: str, model: Any) -> str:
        """Return the text to read, with {document} in place of the document; `prefix` is from the model's config."""
        prompt, is_decoder = self.options.prompt, not model.config.is_encoder_decoder
        if self.options.source_prefix is not None and (is_decoder or prompt is not None):
            raise UserError(f"--source_prefix: {self.name} reads a prompt; leave it out, or change --prompt")
        if prompt is None and is_decoder:
            return read_prompt(CHAT_PROMPT) if self.is_chat else CONTINUED_PROMPT
        if prompt is None:
            return (prefix if self.options.source_prefix is None else self.options.source_prefix) + "{document}"
        template = prompt if "{document}" in prompt else read_prompt(prompt)  # text of a prompt, or its name or file
        check_fields(prompt, template, {"document": True, "n": False, "query": False})  # True: required, False: refused
        return template  # {n}, a number of words, and {query} have values in `precis baseline chat` alone

    def _task_settings(self, task: Mapping[str, Any], model: Any) -> dict[str, Any]:
        """Return generation settings in `task`, the config of "summarization"; adds a length limit if none is set."""
        names = vars(model.generation_config).keys() - generation.FIXED  # FIXED: set by the suite, which never samples
        settings = {name: value for name, value in task.items() if name in names}
        limits = model.generation_config.to_dict() | settings  # to look up whether either sets a maximum length
        if model.config.is_encoder_decoder:
            if not (limits.get("max_length") or limits.get("max_new_tokens")):
                positions = generation.positions(model, "decoder") or generation.DEFAULT_LENGTH
                settings["max_new_tokens"] = min(generation.DEFAULT_LENGTH, positions)
        elif not limits.get("max_new_tokens"):  # the `max_length` of a decoder would count the prompt, too
            settings["max_new_tokens"] = CHAT_LENGTH if self.is_chat else generation.DEFAULT_LENGTH
        return settings

    @property
    def max_source(self) -> int | None:
        """Maximum number of input tokens, special tokens and prompt included; None for no limit."""
        limits = (generation.positions(self.generator.model, "encoder"), self.generator.tokenizer.model_max_length)
        window = min((limit for limit in limits if limit and limit < generation.UNLIMITED), default=None)
        if window is not None and self.generator.is_decoder_only:
            window -= self.generator.max_new_tokens  # prompt and answer share the positions
        return window if self.options.max_source is None else self.options.max_source

    def _check_positions(self) -> None:
        """Raise a `UserError` if the model has too few positions for its inputs and outputs."""
        input_positions = generation.positions(self.generator.model, "encoder")
        output_positions = generation.positions(self.generator.model, "decoder")  # None for no limit, also above
        limit, length = self.max_source, self.generator.max_new_tokens
        if output_positions and length > output_positions:
            remedy = f"give --generation.max_new_tokens {output_positions} or less"
            raise UserError(f"summaries of {length} tokens: the model has {output_positions} positions; {remedy}")
        if limit is not None and limit < len(self.encode("")) + 2:  # prompt, special tokens and at least 2 more
            raise UserError(f"--max_source {limit}: no room for a document beside the prompt and special tokens")
        output_share = length if self.generator.is_decoder_only else 0  # a decoder continues its input
        if input_positions and limit is not None and limit + output_share > input_positions:
            beside = f" for it and {length} tokens of the summary" if output_share else ""
            problem = f"the model has {input_positions} positions{beside}"
            raise UserError(f"--max_source {limit}: {problem}; give at most as many")

    def to(self, device: torch.device | str) -> Self:
        """Do nothing: the options set the device. Commands call this method to move a model of any kind."""
        return self

    @contextmanager
    def changed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Replace settings, named as in transformers or `DecodingOptions`, in a context; a `UserError` if refused."""
        model, before = self.generator.model, self.generator.model.generation_config
        # `max_length` and `max_new_tokens` set the same limit, so either replaces an option with the other name.
        replaced = {generation.OTHER_NAME.get(name) for name in settings}
        others = {name: value for name, value in self.options.generation.items() if name not in replaced}
        try:
            self.generator.change(others | dict(settings))  # with options again, since `change` undoes earlier calls
            self._check_positions()
            yield
        finally:
            model.generation_config = before

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return token ids of a text in the prompt, with special tokens; chat templates ignore tokenizer `options`."""
        prompt = fill(self.template, {"document": text})
        if self.is_chat:
            messages = [{"role": "user", "content": prompt}]
            options = {"add_generation_prompt": True, "return_dict": True}  # True: ends with the header of an answer
            encoded: Any = self.generator.tokenizer.apply_chat_template(messages, **options)
        else:
            encoded = self.generator.tokenizer(prompt, verbose=False, **options)  # no warning of long texts
        return encoded["input_ids"]

    def sources(self, document: Document) -> tuple[list[list[int]], int]:
        """Return the token ids of each window of a document, and the number of all tokens before truncation."""
        sentences = document.sentences
        if self.generator.separator is not None:  # PRIMERA: a separator ends each part (source document)
            parts = [[*part[:-1], f"{part[-1]} {generation.SEPARATOR}"] for part in document.parts]
            sentences = [sentence for part in parts for sentence in part]
        texts = [" ".join(sentences)]
        if self.options.long_documents != "truncate" and self.max_source is not None:
            texts = self._windows(sentences, self.max_source)
        inputs = [self.encode(text) for text in texts]
        total = sum(map(len, inputs))
        if self.max_source is not None:  # a window of one long sentence, or a whole document, may be longer
            limit = self.max_source
            inputs = [ids if len(ids) <= limit else self._truncated(text, limit) for text, ids in zip(texts, inputs)]
        return inputs, total

    def _windows(self, sentences: list[str], max_source: int) -> list[str]:
        """Divide sentences into texts of at most `max_source` tokens, prompt included; a longer sentence is alone."""
        windows: list[str] = []

        def num_tokens(count: int) -> int:
            return len(self.encode(" ".join(sentences[:count])))  # `sentences`: not in a window yet

        while sentences:
            # The most sentences that fit, at least one; by bisection, since tokenizing hundreds of texts takes long.
            count = max(1, bisect_right(range(1, len(sentences) + 1), max_source, key=num_tokens))
            windows.append(" ".join(sentences[:count]))
            sentences = sentences[count:]
        return windows or [""]  # a document without sentences

    def _truncated(self, text: str, max_source: int) -> list[int]:
        """Return the token ids of the longest beginning of a text that has `max_source` tokens with its prompt."""
        if not self.is_chat and self.template.endswith("{document}"):  # the tokenizer truncates the end
            return self.encode(text, truncation=True, max_length=max_source)
        lengths = range(len(text) + 1)  # in characters, from 0; the largest one that fits is found by bisection
        length = bisect_right(lengths, max_source, key=lambda length: len(self.encode(text[:length]))) - 1
        return self.encode(text[:length])

    def summarize(self, batch: TextBatch) -> list[Summary]:
        """Return a summary of each document; its `extra` has the number of windows and of tokens (read, total)."""
        # Answers come in the order of the lengths of inputs, so they are looked up by id.
        answers = {answer.id: answer for group in self.answers(batch.documents) for answer in group}
        summaries = []
        for document in batch.documents:
            answer = answers[document.id]
            extra = {"windows": answer.windows, "source_tokens": list(answer.source_tokens)}
            sentences = sentences_of(answer.text, self.language)
            summaries.append(Summary(document.id, sentences, document.references, extra=extra))
        return summaries

    def answers(self, documents: list[Document]) -> Iterator[list[Answer]]:
        """Yield the answers that each batch completes; a second pass, if chosen, summarizes the joined summaries."""
        first_pass = {}  # answers of documents with several windows, by id
        for answers in self._one_pass(documents):
            if self.options.long_documents == "second_pass":
                first_pass |= {answer.id: answer for answer in answers if answer.windows > 1}
            yield [answer for answer in answers if answer.id not in first_pass]
        joined = [Document(answer.id, [sentences_of(answer.text, self.language)]) for answer in first_pass.values()]
        for answers in self._one_pass([document for document in joined if document.sentences]):
            merged = []
            for second in answers:
                first = first_pass.pop(second.id)  # counts of the document; `second` counts the joined summaries
                merged.append(second._replace(windows=first.windows, source_tokens=first.source_tokens))
            yield merged
        yield list(first_pass.values())  # what is left: documents whose windows all had empty summaries

    def _one_pass(self, documents: list[Document]) -> Iterator[list[Answer]]:
        """Summarize windows in batches of similar length; yield after each batch the answers that it completes."""
        sources = [self.sources(document) for document in documents]  # (ids of each window, tokens before truncation)
        # All windows of all documents in one list: their places (index of document, index of window), and token ids.
        places = [(number, window) for number, (windows, _) in enumerate(sources) for window in range(len(windows))]
        prompts = [prompt for windows, _ in sources for prompt in windows]
        outputs: list[dict[int, generation.Generated]] = [{} for _ in documents]  # of each document, by window
        for group in groups_by_length([len(prompt) for prompt in prompts], self.options.batch_tokens):  # of indices
            complete = []  # answers whose last window is in this group
            for index, output in zip(group, self.generator.generate([prompts[index] for index in group])):
                number, window = places[index]
                outputs[number][window] = output
                windows, total = sources[number]
                if len(outputs[number]) == len(windows):  # all windows of this document are summarized
                    ordered = [outputs[number][i] for i in range(len(windows))]
                    answer = Answer(
                        id=documents[number].id, text="\n".join(self._text(output) for output in ordered),
                        windows=len(windows), source_tokens=(sum(map(len, windows)), total),
                        summary_tokens=sum(output.tokens for output in ordered),
                        stopped=any(map(self._is_cut_off, ordered)),  # whether any ended at the maximum length
                    )  # fmt: skip
                    complete.append(answer)
            yield complete

    def _text(self, output: generation.Generated) -> str:
        """Return the summary in an output: a chat model's without reasoning, the first paragraph of a continuation."""
        if not self.generator.is_decoder_only:
            return output.text
        text = answer_text(output.text)  # without <think>...</think>
        return text if self.is_chat else text.split(PARAGRAPH_END)[0]

    def _is_cut_off(self, output: generation.Generated) -> bool:
        """Return whether a summary ends because of its maximum length; a continuation may go on after the summary."""
        is_continuation = self.generator.is_decoder_only and not self.is_chat
        return output.stopped and not (is_continuation and PARAGRAPH_END in output.text)


def how_read(summary: Summary, long_documents: str) -> str | None:
    """Return a note on how many tokens were read, and in how many windows; None if all were read in one window."""
    read, total = summary.extra.get("source_tokens", (0, 0))  # a model trained here records neither tokens nor windows
    windows = summary.extra.get("windows", 1)
    if windows == 1:
        return f"first {read:,} of {total:,} tokens were read" if read < total else None
    part = f" ({read:,} of {total:,} tokens)" if read < total else ""  # a sentence longer than a window is cut
    again = ", and the result summarized again" if long_documents == "second_pass" else ""
    return f"read in {windows} windows{part}, whose summaries were joined{again}"
