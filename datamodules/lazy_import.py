"""Classes that a package offers and imports on first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

MODULES: dict[str, Mapping[str, str]] = {}  # package -> class -> module that defines it, for `precis --help`


def lazy_classes(package: str, modules: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package; `modules` maps classes to modules, imported on first use."""
    MODULES[package] = modules  # `precis --help` reads the source of these modules instead of importing them

    def get(name: str) -> Any:  # `__getattr__`: import the class `name`
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return list(modules), get
