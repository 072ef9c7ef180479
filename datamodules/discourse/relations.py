"""Inventories of relations: mapping from the fine relations of a treebank to coarse classes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from datamodules.discourse.records import TreebankDocument, TreebankError
from datamodules.discourse.trees import SPAN, Node, Tree

# GUM from release 8 on: the class is the part before the hyphen.
_GUM = {
    "adversative": "antithesis concession contrast", "attribution": "negative positive", "causal": "cause result",
    "context": "background circumstance", "contingency": "condition", "elaboration": "additional attribute",
    "evaluation": "comment", "explanation": "evidence justify motivation", "joint": "disjunction list other sequence",
    "mode": "manner means", "organization": "heading phatic preparation", "purpose": "attribute goal",
    "restatement": "partial repetition", "same-unit": "", "topic": "question solutionhood",
}  # fmt: skip

# RST-DT: the classes of Carlson and Marcu's tagging manual (2001, ISI-TR-545).
_RST_DT = {
    "attribution": "attribution attribution-negative", "background": "background circumstance",
    "cause": "cause cause-result consequence result", "comparison": "analogy comparison preference proportion",
    "condition": "condition contingency hypothetical otherwise", "contrast": "antithesis concession contrast",
    "elaboration": "definition elaboration-additional elaboration-general-specific elaboration-object-attribute "
    "elaboration-part-whole elaboration-process-step elaboration-set-member example",
    "enablement": "enablement purpose", "evaluation": "comment conclusion evaluation interpretation",
    "explanation": "evidence explanation-argumentative reason", "joint": "disjunction list",
    "manner-means": "manner means", "same-unit": "same-unit", "summary": "restatement summary",
    "temporal": "inverted-sequence sequence temporal-after temporal-before temporal-same-time",
    "textual-organization": "textualorganization", "topic-change": "topic-drift topic-shift",
    "topic-comment": "comment-topic problem-solution question-answer rhetorical-question statement-response "
    "topic-comment",
}  # fmt: skip


@dataclass(frozen=True)
class Inventory:
    """Fine relations of a treebank and their coarse classes, which parsers predict."""

    name: str  # name of the inventory
    classes: dict[str, str]  # fine relation, or class, in lower case -> its class
    suffixes: tuple[str, ...] = ()  # of fine relations; they do not affect the class, such as `-e` (embedded) in RST-DT

    @property
    def coarse(self) -> list[str]:
        """The coarse classes, sorted."""
        return sorted(set(self.classes.values()))

    def class_of(self, relation: str) -> str:
        """Return the class of a fine relation, or of a class, ignoring case.

        Raises:
            TreebankError: if the relation is unknown.
        """
        name = relation.lower()
        while name not in self.classes:  # removes suffixes, which do not affect the class
            suffix = next((suffix for suffix in self.suffixes if name.endswith(suffix)), None)
            if suffix is None:
                choices = "choose that of its treebank (--model.inventory gum, rst_dt, or a list of names)"
                raise TreebankError(f"the relation {relation!r} is not in the inventory {self.name}; {choices}")
            name = name.removesuffix(suffix)  # such as `-e` (embedded) of RST-DT; a relation may have several
        return self.classes[name]


def _inventory(name: str, groups: Mapping[str, Sequence[str]], suffixes: tuple[str, ...] = ()) -> Inventory:
    """Return an inventory from the fine relations of each class (`groups`); raise ValueError as in `inventory_of`."""
    classes: dict[str, str] = {}  # class of each relation
    for group, relations in groups.items():
        for relation in (group, *relations):  # treebanks may also use the class itself as a relation
            first_group = classes.setdefault(relation.lower(), group.lower())  # the first class of the relation
            if relation.lower() == SPAN:  # marks a single nucleus in trees, see `Node.relations`
                raise ValueError(f"inventory: {relation!r} is reserved and not a relation; leave it out")
            if first_group != group.lower():
                raise ValueError(f"inventory: {relation!r} is in {first_group!r} and in {group!r}; leave it out of one")
    if not classes:
        raise ValueError("inventory: give at least one relation")
    return Inventory(name, classes, suffixes)


GUM = _inventory("GUM", {group: [f"{group}-{kind}" for kind in kinds.split()] for group, kinds in _GUM.items()})
RST_DT = _inventory(
    "RST-DT",
    {group: names.split() for group, names in _RST_DT.items()},
    ("-e", "-n", "-s"),  # embedded; whether nucleus or satellite has the role, such as consequence
)
INVENTORIES = {"gum": GUM, "rst_dt": RST_DT}


def inventory_of(choice: Sequence[str] | Mapping[str, Sequence[str]] | str) -> Inventory:
    """Return the inventory named `gum` or `rst_dt`, or one for the relations of another treebank.

    These relations are a list of classes, or a mapping from each class to its fine relations; case is ignored.

    Raises:
        ValueError: if the name is unknown, or relations are missing, reserved, or in two classes.
    """
    if isinstance(choice, str):
        if choice not in INVENTORIES:
            lists = "or your relations, such as [cause, contrast] or {cause: [reason, result], contrast: []}"
            raise ValueError(f"inventory {choice!r} is unknown; give {', '.join(INVENTORIES)}, {lists}")
        return INVENTORIES[choice]
    groups = choice if isinstance(choice, Mapping) else {name: [] for name in choice}
    return _inventory("the treebank's own relations", groups)


# Number of nodes of each class in the binary trees of the 178 training documents of GUM (release of May 2025).
GUM_COUNTS = {
    "adversative": 1502, "attribution": 1430, "causal": 982, "context": 1984, "contingency": 395, "elaboration": 4462,
    "evaluation": 889, "explanation": 1309, "joint": 4476, "mode": 419, "organization": 1849, "purpose": 809,
    "restatement": 788, "same-unit": 1269, "topic": 465,
}  # fmt: skip


def coarsened(
    documents: Iterable[TreebankDocument], inventory: Inventory = GUM, where: str = ""
) -> list[TreebankDocument]:
    """Return documents with each relation of their trees replaced by its class; those without a tree are unchanged.

    Raises:
        TreebankError: if a relation is unknown; the message names `where` (a file), the document and the node's EDUs.
    """
    coarse_documents = []
    for document in documents:
        if document.tree is not None:
            location = f"{where}: {document.id}" if where else document.id
            nodes = [_coarse_node(node, inventory, location) for node in document.tree.nodes]
            document = replace(document, tree=Tree(document.tree.size, tuple(nodes)))
        coarse_documents.append(document)
    return coarse_documents


def _coarse_node(node: Node, inventory: Inventory, location: str) -> Node:
    """Return a node with each relation replaced by its class, except `SPAN`, which marks a single nucleus."""
    try:
        relations = [name if name == SPAN else inventory.class_of(name) for name in node.relations]
    except TreebankError as error:
        raise TreebankError(f"{location}, EDUs {node.start} to {node.end}: {error}") from error
    return node._replace(relations=tuple(relations))
