"""Control tasks: documents whose summary only one mechanism can find, with their parsers and their reward.

Configs and sweeps name these classes, so they are a package of their own, which `precis.config.trust` permits.
"""

from datamodules.lazy_import import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, {
    "MeetingTurns": f"{__name__}.meeting_turns",
    "MixedArticles": f"{__name__}.mixed_articles",
    "MixedClusters": f"{__name__}.mixed_clusters",
    "OracleParser": f"{__name__}.oracle_parser",
    "PlantedAnswer": f"{__name__}.planted_answer",
    "PlantedDuplicates": f"{__name__}.planted_duplicates",
    "PlantedEnumerations": f"{__name__}.planted_enumerations",
    "PlantedKeys": f"{__name__}.planted_keys",
    "PlantedNames": f"{__name__}.planted_names",
    "PlantedParser": f"{__name__}.planted_parser",
    "PlantedPrincipals": f"{__name__}.planted_principals",
    "PlantedTrees": f"{__name__}.planted_trees",
})  # fmt: skip
