"""Reader of the XML of RSTTool and rstWeb: `.rs3` and `.rs4`."""

import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import PurePath

from datamodules.discourse.records import TreebankDocument, TreebankError, join_edus, validate_document
from datamodules.discourse.trees import SPAN, Node, Tree, TreeError
from datamodules.text.lines import is_blank

Extent = tuple[int, int]


@dataclass(eq=False)  # compared by identity
class _Unit:
    """A segment or group of the file, and the units attached to it."""

    id: str
    parent: str  # id of the unit that it is attached to; empty for the root
    relation: str  # relation to the parent
    kind: str  # segment, span, multinuc
    edu: int  # index of the EDU of a segment; -1 for a group
    nuclei: list["_Unit"] = field(default_factory=list)
    satellites: list["_Unit"] = field(default_factory=list)


def read(text: str, name: str) -> list[TreebankDocument]:
    """Return the document of a file; its id is the file name without suffixes, its text the EDUs joined by spaces.

    A nucleus and all satellites attached to it form a node, as does a multinuclear group; a span group only stands for
    its nucleus. The header lists relations as multinuclear or mononuclear; for a relation with both types or none,
    `_nuclear_relation` decides by all children of the group. Secondary edges and signals of `.rs4` are ignored.

    Raises:
        TreebankError: if the file is not XML, has no EDU, or has no valid tree: a parent does not exist, there is not
            exactly one root, a cycle, a group without children, or children that are not adjacent.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise TreebankError(f"{name}: not XML ({error}); is the file complete?") from error
    # by name: multinuc, rst (mononuclear), or both, since a name may be listed twice
    relation_types: dict[str, set[str]] = defaultdict(set)
    for relation in root.iter("rel"):
        relation_types[relation.get("name", "")].add("multinuc" if relation.get("type") == "multinuc" else "rst")
    texts = [" ".join("".join(segment.itertext()).split()) for segment in root.iter("segment")]
    if not texts:
        raise TreebankError(f"{name}: no segment in this file; is it RST?")
    units = _units(root, name)
    for unit in units.values():
        if unit.edu >= 0 and is_blank(texts[unit.edu]):  # -1 for a group
            raise TreebankError(f"{name}: segment {unit.id} has no text; fix or remove it")
    try:
        tree = Tree(len(texts), tuple(_nodes(_link(units, relation_types))))
    except TreeError as error:
        raise TreebankError(f"{name}: not a tree: {error}; fix it in RSTTool or rstWeb") from error
    identifier = PurePath(name.removesuffix(".gz")).stem
    return [validate_document(TreebankDocument(identifier, *join_edus(texts), tree=tree), name)]


def _units(root: ElementTree.Element, name: str) -> dict[str, _Unit]:
    """Return the segments and groups of the file `name` by id, in its order; `_link` adds nuclei and satellites."""
    units: dict[str, _Unit] = {}
    edus = count()  # segments are in the order of the text
    for element in root.iter():
        if element.tag not in ("segment", "group"):
            continue
        kind = "segment" if element.tag == "segment" else element.get("type", SPAN)  # SPAN is the default
        edu = next(edus) if kind == "segment" else -1
        unit = _Unit(element.get("id", ""), element.get("parent", ""), element.get("relname", ""), kind, edu)
        if not unit.id or unit.id in units:
            raise TreebankError(f"{name}: the id {unit.id!r} of a {element.tag} is empty or taken; ids must be unique")
        units[unit.id] = unit
    return units


def _link(units: dict[str, _Unit], relation_types: dict[str, set[str]]) -> _Unit:
    """Add each unit to the nuclei or satellites of its parent, by types of relations (see `read`); return the root."""
    roots = [unit for unit in units.values() if not unit.parent]
    if len(roots) != 1:
        raise TreeError(f"{len(roots)} roots{': ' if roots else ''}{', '.join(unit.id for unit in roots[:9])}")
    children: dict[str, list[_Unit]] = defaultdict(list)  # by id of the parent
    for unit in units.values():
        if unit.parent and unit.parent not in units:
            raise TreeError(f"{unit.id} is attached to {unit.parent}, which does not exist")
        children[unit.parent].append(unit)
    reached = list(roots)  # breadth first; units in a cycle are never reached
    for unit in reached:
        nuclear_relation = _nuclear_relation(unit, children[unit.id], relation_types)
        is_group = unit.kind != "segment"
        for child in children[unit.id]:
            joins = unit.kind == "multinuc" and relation_types.get(child.relation) == {"multinuc"}  # several may join
            is_nucleus = is_group and (joins or child.relation in (SPAN, nuclear_relation))  # SPAN: a single nucleus
            (unit.nuclei if is_nucleus else unit.satellites).append(child)
        if is_group and not unit.nuclei:
            raise TreeError(f"group {unit.id} has no nucleus")
        is_span = unit.kind == SPAN and nuclear_relation == SPAN  # no multinuclear relation joins its nuclei
        if is_span and len(unit.nuclei) > 1:
            raise TreeError(f"the span {unit.id} has {len(unit.nuclei)} nuclei")
        reached += children[unit.id]
    reached_ids = {unit.id for unit in reached}
    if unreachable := [name for name in units if name not in reached_ids]:
        raise TreeError(f"{unreachable[0]} is attached to itself in a cycle")
    return roots[0]


def _nuclear_relation(unit: _Unit, children: list[_Unit], relation_types: dict[str, set[str]]) -> str:
    """Return the multinuclear relation that joins the nuclei of a group; SPAN for a segment or a single nucleus."""
    # In Russian and Basque treebanks, groups of type span may have several nuclei with a multinuclear relation.
    if unit.kind == "segment" or (unit.kind == SPAN and any(child.relation == SPAN for child in children)):
        return SPAN
    # relations of the children, without those that the header (`relation_types`) lists as mononuclear (`rst`) only
    candidates = [child.relation for child in children if relation_types.get(child.relation) != {"rst"}]
    if unit.kind == SPAN:
        candidates = [name for name in candidates if candidates.count(name) > 1]  # one child alone may be a satellite
    only_multinuclear = [name for name in candidates if relation_types.get(name) == {"multinuc"}]  # not for satellites
    return Counter(only_multinuclear or candidates).most_common(1)[0][0] if candidates else SPAN  # the most frequent


def _nodes(root: _Unit) -> list[Node]:
    """Return the nodes of the tree, children first: for each unit, one over its nuclei and one with its satellites."""
    order = [root]  # parents before children; recursion would fail for deep trees
    for unit in order:
        order += unit.nuclei + unit.satellites
    nodes: list[Node] = []
    extents: dict[str, Extent] = {}  # first and last EDU of each unit with all units attached to it
    for unit in reversed(order):
        nuclei = [(extents[nucleus.id], "N", nucleus.relation) for nucleus in unit.nuclei]
        extent = (unit.edu, unit.edu) if unit.edu >= 0 else _node(nuclei, unit, nodes)  # `edu` is -1 for a group
        if unit.satellites:
            satellites = [(extents[satellite.id], "S", satellite.relation) for satellite in unit.satellites]
            extent = _node([(extent, "N", SPAN), *satellites], unit, nodes)  # the nucleus is the unit itself
        extents[unit.id] = extent
    return nodes


def _node(children: list[tuple[Extent, str, str]], unit: _Unit, nodes: list[Node]) -> Extent:
    """Append the node over children (extent, N or S, relation), unless there is only one; return their joint extent."""
    extents, letters, relations = zip(*sorted(children), strict=True)  # in the order of the text
    for (_, end), (start, _) in pairwise(extents):
        if start != end + 1:
            raise TreeError(f"the units attached to {unit.id} are not adjacent: EDUs to {end} and from {start}")
    if len(extents) > 1:  # fields of `Node`: first EDU of each child, last EDU, nuclearity, relations
        nodes.append(Node(tuple(start for start, _ in extents), extents[-1][1], "".join(letters), relations))
    return extents[0][0], extents[-1][1]
