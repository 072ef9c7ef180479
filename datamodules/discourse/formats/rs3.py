"""Reader of the XML of RSTTool and rstWeb: `.rs3` and `.rs4`."""

import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePath

from datamodules.discourse.records import TreebankDocument, TreebankError, join_edus, validate_document
from datamodules.discourse.trees import SPAN, Node, Tree, TreeError
from datamodules.text.lines import is_blank

Extent = tuple[int, int]


@dataclass(eq=False)  # compared by identity
class _Unit:
    """A segment or group of the file, and the units attached to it."""

    id: str
    parent: str
    relation: str
    kind: str  # segment, span, multinuc
    edu: int = -1
    nuclei: list["_Unit"] = field(default_factory=list)
    satellites: list["_Unit"] = field(default_factory=list)


def read(text: str, name: str) -> list[TreebankDocument]:
    """Return the document of a file; its id is the file name without suffixes, its text the EDUs joined by spaces.

    A nucleus and all satellites attached to it form a node, as does a multinuclear group; a span group does not. A
    relation that the header lists with both types or not at all counts as multinuclear if it is attached to a
    multinuclear group whose other children have it, too. A span group of such children is multinuclear. Secondary edges
    and signals of `.rs4` are ignored.

    Raises:
        TreebankError: if the file is not XML, has no EDU, or has no valid tree: a parent does not exist, there is not
            exactly one root, a cycle, a group without children, or children that are not adjacent.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise TreebankError(f"{name}: not XML ({error}); is the file complete?") from error
    kinds: dict[str, set[str]] = defaultdict(set)
    for relation in root.iter("rel"):
        kinds[relation.get("name", "")].add("multinuc" if relation.get("type") == "multinuc" else "rst")
    texts = [" ".join("".join(segment.itertext()).split()) for segment in root.iter("segment")]
    identifier = PurePath(name.removesuffix(".gz")).stem
    if not texts:
        raise TreebankError(f"{name}: no segment in this file; is it RST?")
    units = _units(root, name)
    for unit in units.values():
        if unit.edu >= 0 and is_blank(texts[unit.edu]):
            raise TreebankError(f"{name}: segment {unit.id} has no text; fix or remove it")
    try:
        tree = Tree(len(texts), tuple(_nodes(_linked(units, kinds))))
    except TreeError as error:
        raise TreebankError(f"{name}: not a tree: {error}; fix it in RSTTool or rstWeb") from error
    joined_text, edus = join_edus(texts)
    return [validate_document(TreebankDocument(identifier, joined_text, edus, tree=tree), name)]


def _units(root: ElementTree.Element, name: str) -> dict[str, _Unit]:
    units: dict[str, _Unit] = {}
    edus = 0
    for element in root.iter():
        if element.tag not in ("segment", "group"):
            continue
        kind = "segment" if element.tag == "segment" else element.get("type", SPAN)
        unit = _Unit(element.get("id", ""), element.get("parent", ""), element.get("relname", ""), kind)
        if unit.kind == "segment":
            unit.edu, edus = edus, edus + 1
        if not unit.id or unit.id in units:
            raise TreebankError(f"{name}: the id {unit.id!r} of a {element.tag} is empty or taken; ids must be unique")
        units[unit.id] = unit
    return units


def _linked(units: dict[str, _Unit], kinds: dict[str, set[str]]) -> _Unit:
    """Attach all units to their parents, and return the root; `kinds` are the types of relations in the header."""
    roots = [unit for unit in units.values() if not unit.parent]
    if len(roots) != 1:
        raise TreeError(f"{len(roots)} roots{': ' if roots else ''}{', '.join(unit.id for unit in roots[:9])}")
    children: dict[str, list[_Unit]] = defaultdict(list)
    for unit in units.values():
        if unit.parent and unit.parent not in units:
            raise TreeError(f"{unit.id} is attached to {unit.parent}, which does not exist")
        children[unit.parent].append(unit)
    reached = list(roots)
    for unit in reached:
        nuclear_relation = _nuclear_relation(unit, children[unit.id], kinds)
        for child in children[unit.id]:
            nucleus = unit.kind != "segment" and child.relation in (SPAN, nuclear_relation)
            (unit.nuclei if nucleus else unit.satellites).append(child)
        if unit.kind != "segment" and not unit.nuclei:
            raise TreeError(f"group {unit.id} has no nucleus")
        is_span = unit.kind == SPAN and nuclear_relation == SPAN  # its nuclei have no multinuclear relation
        if is_span and len(unit.nuclei) > 1:
            raise TreeError(f"the span {unit.id} has {len(unit.nuclei)} nuclei")
        reached += children[unit.id]
    if len(reached) < len(units):
        reached_ids = {unit.id for unit in reached}
        lost = next(unit for unit in units.values() if unit.id not in reached_ids)
        raise TreeError(f"{lost.id} is attached to itself in a cycle")
    return roots[0]


def _nuclear_relation(unit: _Unit, children: list[_Unit], kinds: dict[str, set[str]]) -> str:
    """Return the most frequent relation of a group's nuclei, if possible one only for nuclei; SPAN without one."""
    # groups of type span with such nuclei are multinuclear, too: Russian and Basque treebanks write them
    if unit.kind == "segment" or (unit.kind == SPAN and any(child.relation == SPAN for child in children)):
        return SPAN
    names = [child.relation for child in children if kinds.get(child.relation) != {"rst"}]  # not only for satellites
    if unit.kind == SPAN:
        names = [name for name in names if names.count(name) > 1]  # a single one may be a satellite
    certain = [name for name in names if kinds.get(name) == {"multinuc"}]
    return Counter(certain or names).most_common(1)[0][0] if names else SPAN


def _nodes(root: _Unit) -> list[Node]:
    """Return the nodes of the tree, children before parents."""
    order = [root]
    for unit in order:
        order += unit.nuclei + unit.satellites
    nodes: list[Node] = []
    extents: dict[str, Extent] = {}
    for unit in reversed(order):
        inner = [(extents[nucleus.id], "N", nucleus.relation) for nucleus in unit.nuclei]
        extent = (unit.edu, unit.edu) if unit.edu >= 0 else _node(inner, unit, nodes)
        if unit.satellites:
            outer = [(extents[satellite.id], "S", satellite.relation) for satellite in unit.satellites]
            extent = _node([(extent, "N", SPAN), *outer], unit, nodes)
        extents[unit.id] = extent
    return nodes


def _node(children: list[tuple[Extent, str, str]], unit: _Unit, nodes: list[Node]) -> Extent:
    """Append the node over children, unless there is only one; return its first and last EDU."""
    extents, letters, names = zip(*sorted(children), strict=True)
    for (_, end), (start, _) in pairwise(extents):
        if start != end + 1:
            raise TreeError(f"the units attached to {unit.id} are not adjacent: EDUs to {end} and from {start}")
    if len(extents) > 1:
        nodes.append(Node(tuple(start for start, _ in extents), extents[-1][1], "".join(letters), names))
    return extents[0][0], extents[-1][1]
