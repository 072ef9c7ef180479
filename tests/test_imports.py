"""Imports point one way, as the design says, whatever is imported first."""

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGES = ("callbacks", "datamodules", "experiments", "lightning_modules", "precis")

# Importable from every layer except those in ALONE; a batch is the contract between a DataModule and its model.
SHARED_NAMES = ("atomic_write", "batch", "documents", "file_locks", "lazy_import", "text")
SHARED = tuple(f"datamodules.{name}" for name in SHARED_NAMES)
# One folder or file per paper. No paper imports another one.
NAMES = ("bertsum_abs", "communicating_agents", "discourse_parser", "extractive", "graphsum", "pegasus")
PAPERS = tuple(f"lightning_modules.{name}" for name in (*NAMES, "pointer_generator", "rstformer"))
BUILDING_BLOCKS = ("lightning_modules.networks", "lightning_modules.decoding", "lightning_modules.metrics")
MODELS = ("lightning_modules", *PAPERS, *BUILDING_BLOCKS)
DATA = ("datamodules", "datamodules.corpora", "datamodules.discourse", "datamodules.graphs", "datamodules.parsing")
# The layers that each layer may import beside itself and SHARED. A module belongs to the layer with the longest name.
LAYERS = {
    "experiments": ("precis", "callbacks", *MODELS, *DATA),
    "precis": ("callbacks", *MODELS, *DATA),
    "callbacks": (*MODELS, *DATA),
    **dict.fromkeys(PAPERS, ("lightning_modules", *BUILDING_BLOCKS, "datamodules.discourse")),
    "lightning_modules": (*BUILDING_BLOCKS, "datamodules.discourse"),
    **dict.fromkeys(BUILDING_BLOCKS, ()),
    "lightning_modules.metrics": ("lightning_modules.networks",),  # metrics by models: their limits of length
    "datamodules": DATA,
    "datamodules.corpora": (),
    "datamodules.discourse": (),
    "datamodules.graphs": ("datamodules.corpora", "datamodules.discourse", "datamodules.parsing"),
    "datamodules.parsing": ("datamodules.corpora", "datamodules.discourse"),
    **dict.fromkeys(SHARED, ()),
}
# Import nothing of ours but their own layer: usable outside the suite.
ALONE = ("lightning_modules.networks", "lightning_modules.decoding", "datamodules.batch", "datamodules.documents")
# The DataModule of a model whose file has another name.
DATA_OF = {
    "lightning_modules.extractive.bertsum": "datamodules.bertsum",
    "lightning_modules.extractive.matchsum": "datamodules.matchsum",
    "lightning_modules.discourse_parser.parser": "datamodules.treebank",
    "lightning_modules.discourse_parser.segmenter": "datamodules.treebank",
}
PATHS = [path.relative_to(ROOT) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): ROOT / path for path in PATHS}


def layer_of(name: str) -> str:
    return max((layer for layer in LAYERS if f"{name}.".startswith(f"{layer}.")), key=len)


def imports(name: str, tree: ast.AST) -> list[tuple[int, str, str]]:
    """Return line, module and name (empty for modules) of all imports of our packages, also in functions."""
    entries = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            entries += [(node.lineno, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: write the whole name of the module"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                entries.append((node.lineno, inner, "") if inner in MODULES else (node.lineno, node.module, alias.name))
    return [entry for entry in entries if entry[1].split(".")[0] in PACKAGES]


IMPORTS = {name: imports(name, ast.parse(path.read_text(encoding="utf-8"))) for name, path in MODULES.items()}


def allowed(name: str, target: str, imported: str) -> bool:
    layer, other = layer_of(name), layer_of(target)
    if layer == other:
        return True
    if layer in ALONE:
        return False
    if layer in PAPERS and other == "datamodules":
        paper = name.removesuffix(".module").replace("lightning_modules", "datamodules")
        return target == DATA_OF.get(name, paper) and imported.endswith("Batch")
    return other in SHARED or other in LAYERS[layer]


def test_no_import_cycle_between_modules_or_at_most_twenty_rooms_without_loose_files():
    graph = nx.DiGraph((name, target) for name, targets in IMPORTS.items() for _, target, _ in targets)
    # the folder of `precis/` that a module lies in, the name of its package elsewhere
    room = {name: ".".join(name.split(".")[: 2 if name.startswith("precis.") else 1]) for name in graph}
    for edges in (graph.edges, [(room[one], room[other]) for one, other in graph.edges]):
        parts = nx.strongly_connected_components(nx.DiGraph(edges))
        assert [sorted(part) for part in parts if len(part) > 1] == []
    rooms = [path for path in (ROOT / "precis").iterdir() if (path / "__init__.py").is_file()]
    assert 10 < len(rooms) <= 20
    assert [path.name for path in (ROOT / "precis").glob("*.py")] == ["__init__.py"]


def test_imports_point_one_way():
    wrong = []
    for name, targets in IMPORTS.items():
        wrong += [(name, layer_of(name), target) for target in targets if not allowed(name, *target[1:])]
    assert wrong == []
    # and what points the other way is found
    for name, line in {
        "lightning_modules.networks.attention": "from datamodules.batch import Batch",
        "lightning_modules.graphsum.module": "from datamodules.rstformer import RSTformerBatch",
        "lightning_modules.summarizer": "from callbacks import Previews",
        "datamodules.pointer_generator": "def later():\n    from lightning_modules.summarizer import Summary",
        "precis.runs.run_folder": "from experiments.studies.controls import points",
    }.items():
        ((_, target, imported),) = imports(name, ast.parse(line))
        assert not allowed(name, target, imported), line


def test_shared_modules_can_be_imported_first_and_import_no_paper():
    """In one process, as loading the libraries takes long. For other modules it follows from the graph of imports."""
    shared = [name for name in MODULES if name.startswith(SHARED)]
    script = f"""
import importlib, sys
for name in {shared}:
    for loaded in [m for m in sys.modules if m.split(".")[0] in {PACKAGES}]:
        del sys.modules[loaded]
    importlib.import_module(name)
    papers = [m for m in sys.modules if m in ("lightning_modules.summarizer", "datamodules.summarization")]
    assert not papers, f"{{name}} can be imported from anywhere, but imports {{papers}}"
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
