"""The models of the playground, loaded once, and a card for each summary, whose markup is in cards.html."""

import base64
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentError

from datamodules.batch import Batch
from datamodules.corpora.corpus import as_document
from datamodules.corpora.texts import Records
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import Document, UserError
from datamodules.graphsum import GraphSumData
from datamodules.summarization import SummarizationData
from datamodules.text.language import space_after_word
from lightning_modules.copying_summarizer import CopyingSummarizer
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.lexrank import LexRank
from lightning_modules.extractive.matchsum import MatchSum
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.summarizer import Summarizer, Summary
from precis.config.shipped import shipped_folder
from precis.discourse.tree_drawing import draw_svg as draw_tree
from precis.files.templates import template
from precis.runs.run_folder import Run, run_documents
from precis.summarizing.draw_attention import relations_of
from precis.summarizing.graph_drawing import draw_svg as draw_graph
from precis.summarizing.hugging_face import HuggingFaceSummarizer, how_read
from precis.summarizing.summarizing import changed_options, load_model, quiet_progress

EXAMPLE = Path(__file__).with_name("example.txt")
_DOCUMENTS = 200  # number of documents of the corpus that can be picked
_LETTERS = 32  # letters per EDU of a tree that fits a card of 22 rem
_TREE_WIDTH = 120  # its width in pixels
_RELATIONS = 3  # number of relations listed for a head; twice as many for a document
_MAX_HEIGHT = 480  # pixels: higher pictures scroll
_MARGIN = 24  # pixels below a picture, for a scroll bar
_ATTENDED = 12  # number of source words that are colored when the pointer rests on a summary word
_IN_HINT = 5  # number of them that the hint lists
_MIN_SCALE = 0.75  # of a picture with readable text
_FAINTEST = 0.12  # opacity at which a color is still visible
AGENTS = ("#1b6ca8", "#c0561a", "#2e7d32", "#8e24aa", "#ad1457", "#5d4037")  # a color for each agent, repeated
MACROS = template("precis.playground", "cards.html").module  # cards_page, card, plain_summary and so on, as functions


class Playground:
    """Loaded models by name, and documents from the corpus of the first one that is a run of the user."""

    def __init__(self, paths: Sequence[str], split: str | None = None, max_characters: int = 20_000) -> None:
        self.max_characters = max_characters
        self._folder = TemporaryDirectory(prefix="precis-")  # for caches, removed with this object
        self._lock = Lock()  # held by `_card`, which changes options of a model
        self.runs: dict[str, Run] = {}
        last_names = [Path(path).name for path in paths]
        for path, last_name in zip(paths, last_names):
            name = last_name if last_names.count(last_name) == 1 else str(path)  # unique
            self.runs[name] = load_model(path, cache_dir=self._folder.name, max_eval=None)  # None: no limit
        # Runs of the user: models of Hugging Face have no config, and shipped models have a folder in the suite.
        loaded = zip(paths, self.runs.values())
        trained = [(path, run) for path, run in loaded if run.config and not shipped_folder(path)]
        self.documents = self._documents(*trained[0], split) if trained else {}  # of the first run

    def _documents(self, folder: str, run: Run, split: str | None) -> dict[str, dict[str, Any]]:
        """Return the first documents of a run's corpus by id; {}, and the reason on stderr, if it cannot be read."""
        try:
            split = split or ("test" if "test" in run.data.corpus.splits() else "val")
            print(f"{folder}: reading the documents of its {split} split", file=sys.stderr, flush=True)  # takes minutes
            with quiet_progress():
                table = run_documents(Path(folder), split)
        except (UserError, ArgumentError, OSError) as error:
            reason = " ".join(str(error).split())
            print(f"{folder}: no documents of its corpus can be picked ({reason})", file=sys.stderr)
            return {}
        records = table.select(range(min(_DOCUMENTS, len(table)))).to_list()  # the first ones
        return {record["id"]: record for record in records}

    def pick(self, document_id: str | None) -> tuple[str, str]:
        """Return the text and the first reference of a document by id; an example without a reference by default."""
        if not document_id or document_id not in self.documents:
            return EXAMPLE.read_text(encoding="utf-8")[: self.max_characters], ""
        document = as_document(self.documents[document_id])
        reference = "\n".join(document.references[0]) if document.references else ""
        return document.text[: self.max_characters], reference

    def summarize(self, text: str, reference: str, names: Sequence[str], beam_size: int) -> str:
        """Return the summaries of a text by the models `names` as HTML; errors become HTML, too, for the page."""
        try:
            self._check(text, reference, names)
            cards = [self._card(number, name, text, reference, beam_size) for number, name in enumerate(names)]
            return MACROS.cards_page(cards)
        except (ValueError, OSError, RuntimeError) as error:
            return MACROS.error_box(" ".join(str(error).split()))

    def _check(self, text: str, reference: str, names: Sequence[str]) -> None:
        """Raise a `UserError` if there is no text or model to summarize with, or a text is too long."""
        if not text.strip():
            raise UserError("There is no text: paste one, or pick a document.")
        for kind, value in (("text", text), ("reference", reference)):
            if len(value) > self.max_characters:
                limit = f"{self.max_characters:,}"
                raise UserError(f"The {kind} has {len(value):,} characters; give at most {limit} (--max_characters).")
        if not names:
            raise UserError("No run is chosen: tick at least one.")

    def _card(self, number: int, name: str, text: str, reference: str, beam_size: int) -> str:
        """Return HTML with one model's summary of a text, and attention, tree or graph; ids contain `number`."""
        run = self.runs[name]
        record = {"id": "text", "document": text} | ({"summary": reference} if reference.strip() else {})
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with TemporaryDirectory(dir=self._folder.name) as cache, self._lock, quiet_progress():  # options change below
            data = run.data.with_corpus(Records([record]), Path(cache), eval_batch_size=1)
            (batch,) = data.test_dataloader()  # of the only document
            batch = batch.to(device)
            run.model.to(device)
            is_extractive = isinstance(run.model, (BertSum, LexRank, MatchSum))  # these have no beam search
            options = {} if is_extractive else {"beam_size": beam_size}
            with changed_options(run.model, options), warnings.catch_warnings(record=True) as caught:
                (summary,) = run.model.scored(run.model.summarize(batch))  # with ROUGE if there is a reference
                parts = sections(f"card{number}", run.model, data, batch, summary)
        parts += [MACROS.note(str(w.message)) for w in caught if w.category is UserWarning]  # such as a language
        return MACROS.card(name, type(run.model).__name__, parts)


def copied_summary(
    prefix: str,
    source: Sequence[str],
    words: Sequence[str],
    copied: Sequence[bool],
    attention: np.ndarray,
    agents: Sequence[int] | None = None,
) -> str:
    """Return HTML of a summary, in which copied words are marked, and of the document below it.

    While the pointer is over a word of the summary, CSS colors the words of the document with the largest attention,
    and a hint lists them. A summary word has the color of the agent (encoder) of the document word attended most.

    Args:
        prefix: prefix of the ids in this card, unique in the page.
        source: words of the document, S.
        words: words of the summary, T.
        copied: for each word of the summary, whether it was copied.
        attention: weights [T, S].
        agents: for each word of the document, the agent that reads it, whose color it has; None for one encoder.
    """
    colors = [None] * len(source) if agents is None else [AGENTS[agent % len(AGENTS)] for agent in agents]
    rules = []
    spans = []
    for number, (word, is_copied, weights) in enumerate(zip(words, copied, attention)):
        top = [int(index) for index in np.argsort(-weights, kind="stable")[:_ATTENDED] if weights[index] > 0]
        for index in top:  # rules of CSS: summary word, source word, and opacity relative to the largest weight
            rules.append((number, index, max(_FAINTEST, float(weights[index] / weights[top[0]]))))
        hint = ", ".join(f"{source[index]} {weights[index]:.2f}" for index in top[:_IN_HINT])
        color = colors[top[0]] if top else None
        spans.append({"text": word, "copied": is_copied, "hint": hint, "color": color, "space": space_after_word(word)})
    legend = {agent + 1: AGENTS[agent % len(AGENTS)] for agent in sorted(set(agents or ()))}  # numbered from 1
    return MACROS.copied_summary(prefix, rules, spans, zip(source, colors, map(space_after_word, source)), legend)


def picture(title: str, svg: str) -> str:
    """Return HTML with an SVG in a frame (iframe), which isolates its styles and enables its tooltips.

    A picture that is wider than the card shrinks by a quarter at most; one that stays too wide or is too high scrolls.
    """
    width, height = map(int, re.findall(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg)[0])
    height += _MARGIN
    if height > _MAX_HEIGHT:
        height = _MAX_HEIGHT
        title = f"{title} (scroll in it, or drag its lower right corner)"
    style = f"<style>body{{margin:0}} svg{{max-width:100%;min-width:{_MIN_SCALE * width:.0f}px;height:auto}}</style>"
    page = f"<!doctype html>{style}<body>{svg}</body>"
    return MACROS.framed(title, height, base64.b64encode(page.encode()).decode())


def sections(prefix: str, model: Summarizer, data: SummarizationData, batch: Batch, summary: Summary) -> list[str]:
    """Return a card's sections as HTML (ids begin with `prefix`): summary, scores and pictures of the only document."""
    parts = []
    if isinstance(summary, ExtractiveSummary):
        parts.append(MACROS.selected_sentences(summary))
    elif isinstance(model, CopyingSummarizer) and summary.copied is not None:  # shown with its attention
        source, _, attention, _ = model.attention_map(batch, 0)  # S words of the document; weights of T words, [T, S]
        parts.append(copied_summary(prefix, source, summary.words, summary.copied, attention, agents_of(batch)))
    else:
        parts.append(MACROS.plain_summary(summary.text))
        if isinstance(model, HuggingFaceSummarizer) and (note := how_read(summary, model.options.long_documents)):
            parts.append(MACROS.note(note))  # how much of a long document was read
    if summary.scores:
        values = [f"{value:.1f}" for value in summary.scores.values()]
        parts.append(MACROS.table("ROUGE F1 x 100 against the reference", list(summary.scores), [values]))
    document = as_document(data.documents("test")[0])  # the only split, with the only document
    if isinstance(model, RSTformer) and model.ablation != "no_discourse":
        parts += discourse_sections(model, data, document)
    if isinstance(data, GraphSumData) and data.graph.name != "none":
        parts.append(graph_section(data, document, summary))
    return parts


def agents_of(batch: Any) -> list[int] | None:
    """Return the agent that reads each word of a batch's first document; None for models without agents."""
    lengths = batch.lengths[0]  # number of words of each of M agents, [M]; without agents, the document's as a scalar
    if lengths.dim() == 0:
        return None
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths.cpu()).tolist()


def discourse_sections(model: RSTformer, data: SummarizationData, document: Document) -> list[str]:
    """Return HTML with the RST tree of a document, its most probable relations, and relations of attention heads."""
    (features,) = data.features("test")  # of the only document, which the card summarizes
    if not features["parse"]:  # the parse's key in the cache is empty for a document without words
        return []
    parse: DiscourseParse = data.cache.get(features["parse"], features["id"])
    texts = [document.text[start:end] for start, end in parse.edus.tolist()]  # of EDUs (discourse units)
    tree = draw_tree(parse.best_tree(), texts, letters=_LETTERS, wrap=True, tree_width=_TREE_WIDTH)
    parts = [picture("RST tree of the document", tree)]
    # probabilities of R relations between each of E EDUs and the b EDUs on both sides, [E, 2b + 1, R] -> sums [R]
    mass = parse.band(parse.half_width).sum((0, 1))
    share = mass / mass.sum().clamp_min(1e-9)  # a single EDU has no pairs: all shares are 0
    top = share.argsort(descending=True, stable=True)[: 2 * _RELATIONS].tolist()  # twice as many as for a head
    shares = [[parse.relations[index], f"{100 * share[index]:.0f} %"] for index in top if share[index] > 0]
    parts.append(MACROS.table("relations of the document, share of the distribution", ["relation", "share"], shares))
    heads = []
    for layer in range(len(model.network.injections)):  # modules that add the parse, per encoder layer or shared
        for head, names in enumerate(relations_of(model, layer, parse.relations)):  # names: joined by commas
            heads.append([str(layer + 1), str(head + 1), ", ".join(names.split(", ")[:_RELATIONS])])
    if heads:
        parts.append(MACROS.table("relations that weigh most in each head", ["layer", "head", "relations"], heads))
    return parts


def graph_section(data: GraphSumData, document: Document, summary: Summary) -> str:
    """Return HTML with the graph of a document's paragraphs, and the attention of summary sentences to paragraphs."""
    data.graph.prepare([document])  # which parses the document for a graph of RST relations
    paragraphs = data.paragraphs(document)
    attention = summary.extra.get("paragraph_attention")  # a list of weights for each summary sentence
    svg = draw_graph(data.graph(paragraphs), paragraphs.texts, summary.sentences, attention)
    return picture(f"paragraph graph ({data.graph.name}) and the attention of the summary", svg)
