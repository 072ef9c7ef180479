"""Sections of a card that explain the summary of each kind of model: attention, trees, graphs, scores."""

from typing import Any

import torch

from datamodules.batch import Batch
from datamodules.corpora.corpus import as_document
from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import Document
from datamodules.graphsum import GraphSumData
from datamodules.summarization import SummarizationData
from lightning_modules.copying_summarizer import CopyingSummarizer
from lightning_modules.extractive.summary import ExtractiveSummary
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.summarizer import Summarizer, Summary
from precis.discourse.tree_drawing import draw_svg as draw_tree
from precis.playground.cards import MACROS, copied_summary, picture
from precis.summarizing.draw_attention import relations_of
from precis.summarizing.graph_drawing import draw_svg as draw_graph

_LETTERS, _TREE_WIDTH = 32, 120  # letters per EDU and pixels of a tree that fits a card of 22 rem
_RELATIONS = 3  # number of relations shown for a head; twice as many for a document


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
