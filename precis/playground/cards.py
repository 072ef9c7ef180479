"""Cards of the playground: the summary of each model, and what explains it; the markup is in cards.html."""

import base64
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from datamodules.batch import Batch
from datamodules.corpora.corpus import as_document
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import Document
from datamodules.graphsum import GraphSumData
from datamodules.summarization import SummarizationData
from datamodules.text.language import space_after_word
from lightning_modules.copying_summarizer import CopyingSummarizer
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.summarizer import Summarizer, Summary
from precis.discourse.tree_drawing import draw_svg as draw_tree
from precis.files.templates import template
from precis.summarizing.draw_attention import relations_of
from precis.summarizing.graph_drawing import draw_svg as draw_graph
from precis.summarizing.hugging_face import HuggingFaceSummarizer, how_read

_LETTERS, _TREE_WIDTH = 32, 120  # letters per EDU and pixels of a tree that fits a card of 22 rem
_RELATIONS = 3  # number of relations shown for a head; twice as many for a document
_PICTURE = 480  # pixels; higher pictures scroll
_ATTENDED = 12  # source words that are colored when the pointer rests on a word of the summary
AGENTS = ("#1b6ca8", "#c0561a", "#2e7d32", "#8e24aa", "#ad1457", "#5d4037")  # a color for each agent, repeated

MACROS = template("precis.playground", "cards.html").module  # cards_page, card, plain_summary and so on, as functions


def copied_summary(
    prefix: str,
    source: Sequence[str],
    words: Sequence[str],
    copied: Sequence[bool],
    attention: np.ndarray,
    agents: Sequence[int] | None = None,
) -> str:
    """Return a summary with marked copied words, above the document.

    While the pointer is over a word of the summary, the words of the document with the largest attention are colored by
    weight, through rules of CSS without a script.

    Args:
        prefix: prefix of the ids in this card, unique in the page.
        source: words of the document, S.
        words: words of the summary, T.
        copied: for each word of the summary, whether it was copied.
        attention: weights [T, S].
        agents: for each word of the document, the agent that reads it; colors the words of each agent.
    """
    colors = [None] * len(source) if agents is None else [AGENTS[agent % len(AGENTS)] for agent in agents]
    rules, spans = [], []
    for number, (word, is_copied, weights) in enumerate(zip(words, copied, attention)):
        top = [int(index) for index in np.argsort(-weights, kind="stable")[:_ATTENDED] if weights[index] > 0]
        rules += [(number, index, max(0.12, float(weights[index] / weights[top[0]]))) for index in top]
        hint = ", ".join(f"{source[index]} {weights[index]:.2f}" for index in top[:5])
        color = colors[top[0]] if top else None
        spans.append({"text": word, "copied": is_copied, "hint": hint, "color": color, "space": space_after_word(word)})
    legend = {agent + 1: AGENTS[agent % len(AGENTS)] for agent in sorted(set(agents or ()))}
    return MACROS.copied_summary(prefix, rules, spans, zip(source, colors, map(space_after_word, source)), legend)


def picture(title: str, svg: str) -> str:
    """Return an SVG in a separate frame, which isolates its styles and enables its tooltips.

    A picture that is wider than the card shrinks by a quarter at most, so that it stays readable; the rest scrolls, as
    does a picture that is too high. The title says so.
    """
    width, height = map(int, re.findall(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg)[0])
    height += 24
    if height > _PICTURE:
        height = _PICTURE
        title = f"{title} (scroll in it, or drag its lower right corner)"
    style = f"<style>body{{margin:0}} svg{{max-width:100%;min-width:{0.75 * width:.0f}px;height:auto}}</style>"
    page = f"<!doctype html>{style}<body>{svg}</body>"
    return MACROS.framed(title, height, base64.b64encode(page.encode()).decode())


def sections(prefix: str, model: Summarizer, data: SummarizationData, batch: Batch, summary: Summary) -> list[str]:
    """Return the sections of a card on a summary, whose ids have a prefix; the DataModule is over this document."""
    parts = []
    if isinstance(summary, ExtractiveSummary):
        parts.append(MACROS.selected_sentences(summary))
    elif isinstance(model, CopyingSummarizer) and summary.copied is not None:
        source, _, attention, _ = model.attention_map(batch, 0)
        parts.append(copied_summary(prefix, source, summary.words, summary.copied, attention, agents_of(batch)))
    else:
        parts.append(MACROS.plain_summary(summary.text))
        if isinstance(model, HuggingFaceSummarizer) and (note := how_read(summary, model.options.long_documents)):
            parts.append(MACROS.note(note))
    if summary.scores:
        values = [f"{value:.1f}" for value in summary.scores.values()]
        parts.append(MACROS.table("ROUGE F1 x 100 against the reference", list(summary.scores), [values]))
    document = as_document(data.documents("test")[0])
    if isinstance(model, RSTformer) and model.ablation != "no_discourse":
        parts += discourse_sections(model, data, document)
    if isinstance(data, GraphSumData) and data.graph.name != "none":
        parts.append(graph_section(data, document, summary))
    return parts


def agents_of(batch: Any) -> list[int] | None:
    """Return the agent that reads each word of a batch's first document; None for models without agents."""
    lengths = batch.lengths[0]
    if lengths.dim() == 0:
        return None
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths.cpu()).tolist()


def discourse_sections(model: RSTformer, data: SummarizationData, document: Document) -> list[str]:
    """Return the tree of a document, its most probable relations, and the relation of each attention head."""
    (row,) = data.features("test")
    if not row["parse"]:
        return []
    parse: DiscourseParse = data.cache.get(row["parse"], row["id"])
    texts = [document.text[start:end] for start, end in parse.edus.tolist()]
    tree = draw_tree(parse.best_tree(), texts, letters=_LETTERS, wrap=True, tree_width=_TREE_WIDTH)
    parts = [picture("RST tree of the document", tree)]
    mass = parse.band(parse.half_width).sum((0, 1))                                          # [R]
    share = mass / mass.sum().clamp_min(1e-9)
    order = share.argsort(descending=True, stable=True)[: 2 * _RELATIONS].tolist()
    rows = [[parse.relations[index], f"{100 * share[index]:.0f} %"] for index in order if share[index] > 0]
    parts.append(MACROS.table("relations of the document, share of the distribution", ["relation", "share"], rows))
    heads = []
    for layer in range(len(model.network.injections)):
        for head, names in enumerate(relations_of(model, layer, parse.relations)):
            heads.append([str(layer + 1), str(head + 1), ", ".join(names.split(", ")[:_RELATIONS])])
    if heads:
        parts.append(MACROS.table("relations that weigh most in each head", ["layer", "head", "relations"], heads))
    return parts


def graph_section(data: GraphSumData, document: Document, summary: Summary) -> str:
    """Return the graph between a document's paragraphs, and the attention of the sentences of the summary to them."""
    data.graph.prepare([document])
    paragraphs = data.paragraphs(document)
    svg = draw_graph(
        data.graph(paragraphs), paragraphs.texts, summary.sentences, summary.extra.get("paragraph_attention")
    )
    return picture(f"paragraph graph ({data.graph.name}) and the attention of the summary", svg)
