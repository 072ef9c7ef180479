"""One module a paper: from corpus to batch."""

from importlib import import_module
from typing import Any

_HOMES = {
    "CommunicatingAgentsData": "datamodules.communicating_agents",
    "GraphSumData": "datamodules.graphsum",
    "BertSumAbsData": "datamodules.bertsum_abs",
    "ExtractiveData": "datamodules.bertsum",
    "GapSentenceData": "datamodules.gap_sentences",
    "PegasusData": "datamodules.pegasus",
    "MatchSumData": "datamodules.matchsum",
    "PointerGeneratorData": "datamodules.pointer_generator",
    "RSTformerData": "datamodules.rstformer",
    "SegmentationData": "datamodules.segmentation",
    "TreebankData": "datamodules.treebank",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    # on demand: `datamodules.documents` and `datamodules.text` can be had without the papers
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
