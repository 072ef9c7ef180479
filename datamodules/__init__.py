"""One module for each paper: from corpus to batch.

Classes are imported on first use, so that `datamodules.documents` and `datamodules.text` load without the papers.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "CommunicatingAgentsData": "datamodules.communicating_agents",
    "GraphSumData": "datamodules.graphsum",
    "BertSumAbsData": "datamodules.bertsum_abs",
    "ExtractiveData": "datamodules.bertsum",
    "GapSentenceData": "datamodules.gap_sentences",
    "PegasusData": "datamodules.pretrained_summarizer",
    "PretrainedSummarizerData": "datamodules.pretrained_summarizer",
    "MatchSumData": "datamodules.matchsum",
    "PointerGeneratorData": "datamodules.pointer_generator",
    "RSTformerData": "datamodules.rstformer",
    "SegmentationData": "datamodules.treebank",
    "TreebankData": "datamodules.treebank",
})  # fmt: skip
