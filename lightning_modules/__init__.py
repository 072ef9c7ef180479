"""One module a paper: what is learned and how it is trained."""

from lightning_modules.pointer_generator import PointerGenerator

__all__ = ["PointerGenerator"]
