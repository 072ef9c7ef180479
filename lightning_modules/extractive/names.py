"""Names of poolers, scorers and selectors, which commands list without importing torch."""

from typing import Literal

Pooling = Literal["cls", "mean", "max", "self_attention"]
Scoring = Literal["classifier", "document_cosine", "centrality"]
Selector = Literal["top_k", "trigram_blocking", "mmr", "triangle"]
POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "max", "self_attention")
SCORINGS: tuple[Scoring, ...] = ("classifier", "document_cosine", "centrality")
SELECTORS: tuple[Selector, ...] = ("top_k", "trigram_blocking", "mmr", "triangle")
