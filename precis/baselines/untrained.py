"""`precis baseline lead`, `oracle` and so on: baselines without training for the documents of a corpus or a run."""

import inspect
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from datamodules.atomic_write import atomic_file
from datamodules.corpora.corpus import as_document
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.text.lines import counted, json_line
from lightning_modules.extractive.baselines import BASELINES, predictions
from lightning_modules.extractive.names import POOLINGS, SELECTORS
from precis.baselines.input_documents import add_document_arguments, read_documents

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


def untrained(arguments: list[str]) -> None:
    """`precis baseline NAME --corpus CORPUS ... | --run RUN`: write a baseline's summaries as models write theirs.

    `precis baseline hf --help` and `precis baseline chat --help` describe pretrained summarizers and chat models.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    chosen = choose_options(options.name, options)
    documents = read_documents(parser, options)
    rows = predictions(map(as_document, documents), options.name, **chosen)
    target = Path(options.out)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file, progress_bar() as progress:
        for row in progress.track(rows, total=len(documents), description=options.name):
            file.write(json_line(row))
    print(f"{options.name}: {counted(len(documents), 'summary')} in {target}; score them with precis evaluate {target}")


def choose_options(name: str, options: Namespace) -> dict[str, Any]:
    """Return the options of a baseline from the command line.

    Raises:
        UserError: for an option that the baseline does not have.
    """
    chosen = {option: options[option] for option in OPTIONS if options[option] is not None}
    available = [option for option in OPTIONS if option in inspect.signature(BASELINES[name]).parameters]
    for option in chosen:
        if option not in available:
            others = ", ".join(f"--{other}" for other in available)
            raise UserError(f"{name} has no option --{option}; it has {others}")
    if chosen.get("threshold") == "none":
        chosen["threshold"] = None
    return chosen


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="precis baseline", description=untrained.__doc__, exit_on_error=False)
    parser.add_argument("name", type=Literal[*BASELINES], help=f"one of {', '.join(BASELINES)}")
    add_document_arguments(parser)
    parser.add_argument(
        "--k", type=int | None, default=None, help="number of sentences per summary; 3 by default, no limit for oracle"
    )
    parser.add_argument("--seed", type=int | None, default=None, help="seed of random; 0 by default")
    parser.add_argument(
        "--stem", type=bool | None, default=None, help="whether oracle stems words for ROUGE; true by default"
    )
    parser.add_argument(
        "--damping", type=float | None, default=None, help="damping of textrank and lexrank; 0.85 by default"
    )
    parser.add_argument(
        "--threshold", type=float | Literal["none"] | None, default=None,
        help="minimal cosine of linked sentences in lexrank, 0.1 by default; none weights all links by their cosine",
    )  # fmt: skip
    parser.add_argument(
        "--trade_off", type=float | None, default=None, help="weight of relevance in mmr, against redundancy; 0.7"
    )
    parser.add_argument(
        "--encoder", type=str | None, default=None,
        help="encoder of zero_shot: tfidf (default), minilm, or a Hugging Face name (downloaded) or folder",
    )  # fmt: skip
    for option, values in ZERO_SHOT.items():
        help_text = f"of zero_shot: {', '.join(values)}"
        parser.add_argument(f"--{option}", type=Literal[*values] | None, default=None, help=help_text)
    return parser
