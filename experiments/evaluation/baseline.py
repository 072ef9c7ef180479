"""`precis baseline`: summaries by untrained baselines for the documents of a corpus or a run."""

import inspect
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from jsonargparse import ArgumentParser, Namespace

import datamodules.corpora
from datamodules.atomic_write import atomic_file
from datamodules.corpora.corpus import Corpus, as_document, build_documents
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import CorpusError
from datamodules.summarization import default_cache
from datamodules.text.lines import json_line
from experiments.load_classes import load_classes
from experiments.run_folder import load_run
from lightning_modules.extractive.baselines import BASELINES, predictions
from lightning_modules.extractive.scoring import POOLINGS
from lightning_modules.extractive.selection import SELECTORS

OPTIONS = (
    "k", "seed", "stem", "damping", "threshold", "trade_off", "encoder", "encoding", "pooling", "scoring", "selector",
    "mmr_form",
)  # fmt: skip
ZERO_SHOT = {
    "encoding": ("joint", "separate"),
    "pooling": POOLINGS,
    "scoring": ("document_cosine", "centrality"),
    "selector": SELECTORS,
    "mmr_form": ("classic", "penalty"),
}


def baseline(arguments: list[str]) -> None:
    """`precis baseline NAME --corpus CORPUS ... | --run RUN`: writes a baseline's summaries as models write theirs."""
    parser = _parser()
    options = parser.parse_args(arguments)
    given = choose_options(options.name, options)
    if (options.corpus is None) == (options.run is None):
        raise CorpusError("precis baseline needs documents: give --corpus CORPUS ..., or --run RUN, and not both")
    documents = _documents(options, parser.instantiate_classes(options).corpus)
    if options.documents is not None:
        documents = documents.select(range(min(options.documents, len(documents))))
    rows = predictions(map(as_document, documents), options.name, **given)
    target = Path(options.out)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file, progress_bar() as progress:
        for row in progress.track(rows, total=len(documents), description=options.name):
            file.write(json_line(row))
    print(f"{options.name}: {len(documents):,} summaries in {target}; score them with precis evaluate {target}")


def choose_options(name: str, options: Namespace) -> dict[str, Any]:
    """Return the options of a baseline from the command line.

    Raises:
        CorpusError: for an option that the baseline does not have.
    """
    given = {option: options[option] for option in OPTIONS if options[option] is not None}
    known = [option for option in OPTIONS if option in inspect.signature(BASELINES[name]).parameters]
    for option in given:
        if option not in known:
            raise CorpusError(f"{name} has no option --{option}; it has {', '.join(f'--{other}' for other in known)}")
    if given.get("threshold") == "none":
        given["threshold"] = None
    return given


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis baseline", description=baseline.__doc__, exit_on_error=False)
    parser.add_argument("name", type=Literal[*BASELINES], help=f"one of {', '.join(BASELINES)}")
    load_classes(datamodules.corpora)
    parser.add_subclass_arguments(Corpus, "corpus", required=False)
    parser.add_argument("--run", type=str | None, default=None, help="a run folder: the documents of its corpus")
    parser.add_argument("--split", type=str, default="test", help="of the corpus")
    parser.add_argument("--out", type=str, required=True, help="where the summaries go, such as lead.jsonl")
    parser.add_argument("--k", type=int | None, default=None, help="sentences a summary; 3 (oracle: as many as help)")
    parser.add_argument("--seed", type=int | None, default=None, help="of random; 0")
    parser.add_argument("--stem", type=bool | None, default=None, help="stems in the oracle's ROUGE; true")
    parser.add_argument("--damping", type=float | None, default=None, help="of textrank and lexrank; 0.85")
    parser.add_argument(
        "--threshold", type=float | Literal["none"] | None, default=None,
        help="the cosine that links two sentences in lexrank, 0.1; none weighs the links by their cosine",
    )  # fmt: skip
    parser.add_argument("--trade_off", type=float | None, default=None, help="relevance against redundancy in mmr; 0.7")
    parser.add_argument(
        "--encoder", type=str | None, default=None,
        help="of zero_shot: tfidf (the default), minilm, or a Hugging Face name (downloaded) or folder",
    )  # fmt: skip
    for option, values in ZERO_SHOT.items():
        known = f"of zero_shot: {', '.join(values)}"
        parser.add_argument(f"--{option}", type=Literal[*values] | None, default=None, help=known)
    parser.add_argument("--documents", type=int | None, default=None, help="only the first so many")
    parser.add_argument("--on_bad_record", type=Literal["raise", "skip"], default="raise", help="what to do with them")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where documents are kept")
    parser.add_argument("--num_proc", type=int, default=1, help="processes that split sentences")
    return parser


def _documents(options: Namespace, corpus: Corpus | None) -> Dataset:
    if corpus is None:
        return load_run(Path(options.run)).data.documents(options.split)
    return build_documents(
        corpus,
        options.split,
        options.cache_dir or default_cache(),
        on_bad_record=options.on_bad_record,
        num_proc=options.num_proc,
    )
