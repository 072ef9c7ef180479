"""Data of the discourse parser: treebanks of gold trees over gold EDUs."""

from pathlib import Path
from typing import Any

from datamodules.discourse.features import ParserBatch, ParserFeatures, label_classes, parser_features
from datamodules.discourse.records import TreebankDocument
from datamodules.discourse.relations import coarsened, inventory_of
from datamodules.documents import UserError
from datamodules.text.subwords import Subwords
from datamodules.treebank_split import TreebankSplits


class TreebankData(TreebankSplits):
    """Whole documents of treebanks with binary trees and coarse relations, batched by length.

    Args:
        inventory: coarse relations: `gum`, `rst_dt`, or those of the treebank, see `inventory_of`.

    The other arguments are those of `TreebankSplits`.

    Raises:
        ValueError: if the inventory does not exist, or a batch size is below 1.
    """

    collate = staticmethod(ParserBatch.of)

    def __init__(
        self,
        train: Path,
        val: Path,
        test: Path | None = None,
        checkpoint: str = "small",
        inventory: list[str] | dict[str, list[str]] | str = "gum",
        **shared: Any,
    ) -> None:
        super().__init__(train, val, test, checkpoint, eval_batch_size=1, pool=25, **shared)
        self.inventory = inventory_of(inventory)
        self.classes = {name: number for number, name in enumerate(label_classes(self.inventory))}
        self._documents: dict[str, list[TreebankDocument]] = {}

    def documents(self, split: str) -> list[TreebankDocument]:
        """Return the documents of a split with coarse relations; those left out for their licence are counted.

        Raises:
            UserError: if there is no such split, a document has no tree, or no document is left.
        """
        if split not in self._documents:
            documents = super().documents(split)
            if without_tree := [document.id for document in documents if document.tree is None]:
                problem = f"{self.paths[split]}: {without_tree[0]} and {len(without_tree) - 1} more have no tree"
                raise UserError(f"{problem}; a parser learns from trees")
            self._documents[split] = coarsened(documents, self.inventory, where=str(self.paths[split]))
        return self._documents[split]

    def encode(self, document: TreebankDocument, subwords: Subwords | None) -> ParserFeatures:
        """Return the features of a document, with its gold nodes."""
        spans = document.tree.binary().spans()
        nodes = [(s.start, s.split, s.end, self.classes[s.nuclearity, s.relation]) for s in spans]
        return parser_features(document, document.edus, subwords, nodes, document.id)

    def length(self, features: ParserFeatures) -> int:
        """Return the number of EDUs."""
        return features.size
