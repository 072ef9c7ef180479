"""One module a paper: from corpus to batch."""

from datamodules.pointer_generator import PointerGeneratorData

__all__ = ["PointerGeneratorData"]
