"""Adapter of the parsers of `isanlp_rst` (Chistova 2024)."""

import hashlib
from importlib import import_module, metadata
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.distributions import NUCLEARITIES, Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.relations import GUM
from datamodules.documents import UserError

# Increased whenever the same output of the package would become a different parse.
VERSION = 1
# Arguments of the package for its two models with GUM's relations: English and Russian, and eleven languages.
_MODELS = {
    "gumrrg": {"hf_model_version": "gumrrg"},
    "unirst": {"hf_model_version": "unirst", "relinventory": "eng.erst.gum"},
}


class IsaNLPParser(LightningModule):
    """Greedy RST parser of the package `isanlp_rst`.

    It predicts one tree per document. The labeled discourse distribution (LDD), p(EDU a is the nucleus of EDU b under a
    relation), is computed from the tree, and from the probabilities of its nodes' labels if the package has them (most
    models give 1). Weights are downloaded (Hugging Face hub; research use, see their licenses) for the first document.

    Args:
        rows: which EDUs count in the LDD: all in a node's nucleus (`side`), or only nuclei of their parent (`nucleus`).
        band: half-width of the band of the LDD: maximum distance, in EDUs, of the pairs that are stored.
        model: `gumrrg` for English and Russian, or `unirst` for Basque, Chinese, Czech, Dutch, English, French, German,
            Persian, Portuguese, Russian and Spanish.

    Raises:
        UserError: if the package is not installed.
    """

    def __init__(self, rows: Rows = "side", band: int = 128, model: Literal["gumrrg", "unirst"] = "gumrrg") -> None:
        super().__init__()
        try:
            self._package = import_module("isanlp_rst.parser")  # now, so that an error comes before the first document
        except ImportError as error:
            install = "pip install git+https://github.com/iinemo/isanlp.git isanlp_rst"
            raise UserError(f"--parser isanlp_rst: {error}; install it ({install}), or use another parser") from None
        self.rows = rows
        self.band = band
        self.model = model
        self.inventory = GUM  # both models predict GUM's relations
        self.relations = tuple(self.inventory.coarse)
        self._parser: Any = None  # set by the first `parse`

    @property
    def fingerprint(self) -> str:
        """Digest of what a parse depends on: versions of the adapter and the package, and the name of the model."""
        try:
            package_version = metadata.version("isanlp_rst")
        except metadata.PackageNotFoundError:  # importable from a folder, but not installed
            package_version = "unknown"
        return hashlib.sha256(f"isanlp_rst {VERSION} {package_version} {self.model}".encode()).hexdigest()

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]:
        """Parse the documents of a batch one by one, as the package does."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """Parse one document; a `UserError` if the package changes given EDUs or makes EDUs that are not the text."""
        if self._parser is None:  # weights are downloaded and loaded with the first document
            device = (self.device.index or 0) if self.device.type == "cuda" else -1  # -1 is the CPU
            self._parser = self._package.Parser(
                hf_model_name="tchewik/isanlp_rst_v3", cuda_device=device, **_MODELS[self.model]
            )
        if request.edus is None:
            root = self._parser(request.text)["rst"][0]  # root unit of the tree of the only text
        else:
            root = self._parser.from_edus([request.text[start:end] for start, end in request.edus])["rst"][0]
        leaves, nodes = _flatten(root)
        edus = request.edus if request.edus is not None else locate_edus([leaf.text for leaf in leaves], request)
        if len(edus) != len(leaves):
            raise UserError(f"document {request.id!r}: isanlp_rst made {len(leaves)} EDUs of the {len(edus)} given")
        nodes_of_tree = []  # start, split, end, indices of nuclearity and relation
        for start, split, end, unit in nodes:  # split: last EDU of the left child
            relation = self.relations.index(self.inventory.class_of(unit.relation))
            nodes_of_tree.append((start, split, end, NUCLEARITIES.index(unit.nuclearity), relation))
        tree = torch.tensor(nodes_of_tree, dtype=torch.int32).reshape(-1, 5)  # [0, 5] for one EDU
        # some models of the package have no probabilities
        probability = torch.tensor([float(getattr(unit, "proba", 1.0)) for *_, unit in nodes]).clamp(0, 1)  # [E - 1]
        ldd = tree_ldd(tree, len(edus), len(self.relations), self.rows, self.band, probability)
        gamma = tree_gamma(tree, len(edus), self.rows, probability)  # importance of EDUs, [E]
        return DiscourseParse.of(request, list(edus), self.relations, tree, ldd, self.rows, gamma)


def _flatten(root: Any) -> tuple[list[Any], list[tuple[int, int, int, Any]]]:
    """Return a tree's leaves, and (first leaf, last leaf of the left child, last leaf, unit) of each inner unit."""
    leaves: list[Any] = []  # the package's objects for nodes of a tree, here called units
    nodes: list[tuple[int, int, int, Any]] = []
    starts: dict[int, int] = {}  # index of the first leaf of each unit, by `id(unit)`
    splits: dict[int, int] = {}  # index of the last leaf of the left child
    pending = [(root, "enter")]  # a stack, since recursion over a deep tree would exceed its limit
    while pending:
        unit, step = pending.pop()
        if unit.left is None:
            leaves.append(unit)
        elif step == "enter":
            starts[id(unit)] = len(leaves)
            # the last item is popped next
            pending += [(unit, "leave"), (unit.right, "enter"), (unit, "between children"), (unit.left, "enter")]
        elif step == "between children":
            splits[id(unit)] = len(leaves) - 1
        else:
            nodes.append((starts[id(unit)], splits[id(unit)], len(leaves) - 1, unit))
    return leaves, nodes


def locate_edus(texts: list[str], request: ParseRequest) -> list[tuple[int, int]]:
    """Return (start, end) of the EDUs `texts`; a `UserError` unless they are the whole text except for white space."""
    positions = [position for position, char in enumerate(request.text) if not char.isspace()]
    edus = []
    index = 0  # index in `positions` of the first character of the next EDU
    for text in texts:
        chars = "".join(text.split())
        expected = "".join(request.text[position] for position in positions[index : index + len(chars)])
        if chars != expected or not chars:
            raise UserError(f"document {request.id!r}: isanlp_rst's EDU {text[:40]!r} is not the text at its place")
        edus.append((positions[index], positions[index + len(chars) - 1] + 1))  # end exclusive
        index += len(chars)
    if index != len(positions):
        raise UserError(f"document {request.id!r}: isanlp_rst left out {request.text[positions[index] :][:40]!r}")
    return edus
