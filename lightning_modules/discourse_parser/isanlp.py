"""The parsers of `isanlp_rst` (Chistova 2024) behind the interface of ours."""

import hashlib
from importlib import import_module, metadata
from typing import Any

import torch
from pytorch_lightning import LightningModule

from datamodules.discourse.distributions import NUCLEARITIES, Rows, tree_gamma, tree_ldd
from datamodules.discourse.parses import DiscourseParse, ParseRequest
from datamodules.discourse.relations import GUM, RST_DT
from datamodules.documents import CorpusError

# Raised whenever the same answer of theirs would become another parse.
VERSION = 1
_INVENTORIES = {"gumrrg": GUM, "rstdt": RST_DT, "unirst": GUM}


class IsaNLPParser(LightningModule):
    """A greedy parser with one tree a document: its LDD is that tree's, with the probability of a node's label where
    the package gives one (of its models, most say 1).

    The package and its weights (Hugging Face hub; research use, see their licences) are loaded with the first document,
    the weights by the package itself, which downloads them.

    Args:
        rows: reading of the LDD.
        band: half-width of the band to keep.
        version: of the model: `gumrrg`, `unirst` (both with GUM's relations) or `rstdt`.

    Raises:
        CorpusError: if the package is not installed, or there is no such version.
    """

    def __init__(self, rows: Rows = "side", band: int = 128, version: str = "gumrrg") -> None:
        super().__init__()
        if version not in _INVENTORIES:
            raise CorpusError(f"isanlp_rst: no version {version!r}; there are {', '.join(_INVENTORIES)}")
        try:
            self._package = import_module("isanlp_rst.parser")
        except ImportError as error:
            install = "pip install git+https://github.com/iinemo/isanlp.git isanlp_rst"
            raise CorpusError(f"--parser isanlp_rst: {error}; install it ({install}), or use another parser") from None
        self.rows, self.band, self.version = rows, band, version
        self.inventory = _INVENTORIES[version]
        self.relations = tuple(self.inventory.coarse)
        self._parser: Any = None

    @property
    def fingerprint(self) -> str:
        """What identifies its answers: the package's version and the model's name."""
        try:
            package = metadata.version("isanlp_rst")
        except metadata.PackageNotFoundError:
            package = "unknown"
        return hashlib.sha256(f"isanlp_rst {VERSION} {package} {self.version}".encode()).hexdigest()

    def predict_step(self, batch: list[ParseRequest], batch_idx: int) -> list[DiscourseParse]:
        """Parses each document of a batch, one by one as the package does."""
        return [self.parse(request) for request in batch]

    def parse(self, request: ParseRequest) -> DiscourseParse:
        """The parse of one document.

        Raises:
            CorpusError: if EDUs are given that it cannot keep to, or its answer does not fit the text.
        """
        if self._parser is None:
            device = self.device.index or 0 if self.device.type == "cuda" else -1
            options = {"relinventory": "eng.erst.gum"} if self.version == "unirst" else {}
            self._parser = self._package.Parser(
                hf_model_name="tchewik/isanlp_rst_v3", hf_model_version=self.version, cuda_device=device, **options
            )
        if request.edus is None:
            root = self._parser(request.text)["rst"][0]
        else:
            root = self._parser.from_edus([request.text[start:end] for start, end in request.edus])["rst"][0]
        leaves, nodes = _flat(root)
        edus = request.edus if request.edus is not None else located([leaf.text for leaf in leaves], request)
        if len(edus) != len(leaves):
            raise CorpusError(f"document {request.id!r}: isanlp_rst made {len(leaves)} EDUs of the {len(edus)} given")
        rows = [(a, k, b, NUCLEARITIES.index(unit.nuclearity), self._relation(unit)) for a, k, b, unit in nodes]
        tree = torch.tensor(rows, dtype=torch.int32).reshape(-1, 5)
        probability = torch.tensor([float(getattr(unit, "proba", 1.0)) for *_, unit in nodes]).clamp(0, 1)
        band = min(self.band, len(edus) - 1)
        ldd = tree_ldd(tree, len(edus), len(self.relations), self.rows, band, probability)
        gamma = tree_gamma(tree, len(edus), self.rows, probability)
        return DiscourseParse.of(request, list(edus), self.relations, tree, ldd, self.rows, gamma)

    def _relation(self, unit: Any) -> int:
        return self.relations.index(self.inventory.class_of(unit.relation))


def _flat(root: Any) -> tuple[list[Any], list[tuple[int, int, int, Any]]]:
    """Leaves in order, and (start, split, end, unit) of the inner units; without recursion, as trees may be deep."""
    leaves: list[Any] = []
    nodes: list[tuple[int, int, int, Any]] = []
    first: dict[int, int] = {}  # id of a unit under way -> its first leaf, then its split
    split: dict[int, int] = {}
    waiting = [(root, "down")]
    while waiting:
        unit, step = waiting.pop()
        if unit.left is None:
            leaves.append(unit)
        elif step == "down":
            first[id(unit)] = len(leaves)
            waiting += [(unit, "up"), (unit.right, "down"), (unit, "between"), (unit.left, "down")]
        elif step == "between":
            split[id(unit)] = len(leaves) - 1
        else:
            nodes.append((first[id(unit)], split[id(unit)], len(leaves) - 1, unit))
    return leaves, nodes


def located(texts: list[str], request: ParseRequest) -> list[tuple[int, int]]:
    """Offsets of EDUs whose texts are known but for whitespace: their other characters follow each other in the text.

    Raises:
        CorpusError: if they are not all of the text's characters, as a tokenizer may have changed some.
    """
    places = [place for place, letter in enumerate(request.text) if not letter.isspace()]
    edus, at = [], 0
    for text in texts:
        letters = "".join(text.split())
        if letters != "".join(request.text[place] for place in places[at : at + len(letters)]) or not letters:
            raise CorpusError(f"document {request.id!r}: isanlp_rst's EDU {text[:40]!r} is not the text at its place")
        edus.append((places[at], places[at + len(letters) - 1] + 1))
        at += len(letters)
    if at != len(places):
        raise CorpusError(f"document {request.id!r}: isanlp_rst left out {request.text[places[at] :][:40]!r}")
    return edus
