"""Models: one folder (or file) per paper, the base classes that papers share, and building blocks.

Classes are imported on first use, so that `lightning_modules.metrics` and other light parts load without the papers.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "BertSum": "lightning_modules.extractive.bertsum",
    "BertSumAbs": "lightning_modules.bertsum_abs",
    "CommunicatingAgents": "lightning_modules.communicating_agents.module",
    "DiscourseParser": "lightning_modules.discourse_parser.parser",
    "EduSegmenter": "lightning_modules.discourse_parser.segmenter",
    "GraphSum": "lightning_modules.graphsum.module",
    "MatchSum": "lightning_modules.extractive.matchsum",
    "Pegasus": "lightning_modules.pegasus",
    "PretrainedSummarizer": "lightning_modules.pretrained_summarizer",
    "PointerGenerator": "lightning_modules.pointer_generator.module",
    "RSTformer": "lightning_modules.rstformer.module",
})  # fmt: skip
