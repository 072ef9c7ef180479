"""ROUGE of lead-1, the first sentence of each document, beside which scores of models are shown."""

from collections.abc import Iterable, Mapping

from datamodules.documents import Document
from lightning_modules.metrics.rouge import VARIANTS, has_text, score_many


def lead_scores(documents: Iterable[Document], language: str = "en") -> dict[str, float]:
    """Return the mean ROUGE F1 x 100 of documents' first sentences, by variant; {} without nonblank references."""
    leads, references = [], []
    for document in documents:
        if nonblank := [reference for reference in document.references if has_text(reference)]:
            leads.append(document.sentences[:1])
            references.append(nonblank)
    if not leads:
        return {}
    scores = score_many(leads, references, language=language)
    return {name: 100 * sum(score[name].fmeasure for score in scores) / len(scores) for name in VARIANTS}


def describe_lead(lead: Mapping[str, float]) -> str:
    """Return a line of text with the ROUGE scores of lead-1."""
    scores = ", ".join(f"{name} {value:.2f}" for name, value in lead.items())
    return f"lead-1, the first sentence of each document: {scores}"


def beside_lead(rouge1: float, lead: Mapping[str, float] | None) -> str:
    """Return a text with ROUGE-1 of a model and, if known, of lead-1, the first sentence of each document."""
    compared = f"; the first sentence of each document (lead-1) has {lead['rouge1']:.2f}" if lead else ""
    return f"ROUGE-1 {rouge1:.2f}{compared}"
