"""Import the classes that command line and configs name by short names: jsonargparse finds those that are imported."""

from types import ModuleType

import callbacks
import datamodules.corpora
import lightning_modules
import precis.config.argument_values  # noqa: F401 (how the values of these classes are read)


def load_classes(*packages: ModuleType) -> None:
    """Import all that some packages offer; if none are given, all packages of the suite."""
    for package in packages or (callbacks, datamodules, datamodules.corpora, lightning_modules):
        for name in package.__all__:
            getattr(package, name)
