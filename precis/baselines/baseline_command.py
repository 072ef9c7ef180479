"""`precis baseline`: summaries by untrained baselines, pretrained summarizers and chat models."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from datamodules.atomic_write import atomic_file
from datamodules.corpora.corpus import as_document
from datamodules.corpora.parallel import progress_bar
from datamodules.documents import UserError
from datamodules.text.lines import json_line
from lightning_modules.extractive.baselines import BASELINES, predictions
from lightning_modules.extractive.names import POOLINGS, SELECTORS
from precis.baselines.baseline_files import add_document_arguments, expand_corpus_file, read_documents, written_line

# Baselines in modules of their own: name of the module, and of the function in it. All others are untrained.
KINDS = {"hf": "hugging_face", "chat": "chat"}
# Options of the baselines that have them: type and help.
OPTIONS: dict[str, tuple[Any, str]] = {
    "k": (int, "number of sentences per summary; 3 by default, no limit for oracle"),
    "seed": (int, "seed of random; 0 by default"),
    "stem": (bool, "whether oracle stems words for ROUGE; true by default"),
    "damping": (float, "damping of textrank and lexrank; 0.85 by default"),
    "threshold": (float | Literal["none"], "lowest cosine of links in lexrank, 0.1 by default; none weights all links"),
    "trade_off": (float, "weight of relevance in mmr, against redundancy; 0.7 by default"),
    "encoder": (str, "encoder of zero_shot: tfidf (default), minilm, or a Hugging Face name (downloaded) or folder"),
}
ZERO_SHOT = {
    "encoding": ("joint", "separate"),
    "pooling": POOLINGS,
    "scoring": ("document_cosine", "centrality"),
    "selector": SELECTORS,
    "mmr_form": ("classic", "penalty"),
}
OPTIONS |= {name: (Literal[*choices], f"of zero_shot: {', '.join(choices)}") for name, choices in ZERO_SHOT.items()}


def baseline(arguments: list[str]) -> None:
    """Run `precis baseline`: the first argument is `hf`, `chat` (the keys of `KINDS`), or an untrained baseline."""
    kind = arguments[0] if arguments else ""
    if kind not in KINDS:
        _untrained(arguments)
    else:
        name = KINDS[kind]  # of the module, and of the function in it
        getattr(import_module(f"precis.baselines.{name}"), name)(arguments[1:])


def _untrained(arguments: list[str]) -> None:
    """`precis baseline NAME --corpus CORPUS ... | --run RUN`: write a baseline's summaries as a file of predictions.

    `precis baseline hf --help` and `precis baseline chat --help` describe pretrained summarizers and chat models.
    """
    parser = ArgumentParser(prog="precis baseline", description=_untrained.__doc__, exit_on_error=False)
    parser.add_argument("name", type=Literal[*BASELINES], help=f"one of {', '.join(BASELINES)}")
    add_document_arguments(parser)
    for option, (option_type, help_text) in OPTIONS.items():
        parser.add_argument(f"--{option}", type=option_type | None, default=None, help=help_text)
    options = parser.parse_args(expand_corpus_file(arguments))
    chosen = _chosen_options(options.name, options)
    documents = read_documents(parser, options)  # with --run, it sets `options.language`
    if "language" in inspect.signature(BASELINES[options.name]).parameters:  # for baselines that compare words
        chosen["language"] = options.language
    summaries = predictions(map(as_document, documents), options.name, **chosen)
    target = Path(options.out)
    target.parent.mkdir(parents=True, exist_ok=True)
    has_text = False  # whether any summary has text
    with atomic_file(target) as file, progress_bar() as progress:
        for record in progress.track(summaries, total=len(documents), description=options.name):
            file.write(json_line(record))
            has_text = has_text or bool(record["summary"])
    if not has_text:  # an oracle selects nothing if the texts are in a script whose words `--language` ignores
        problem = f"every summary is empty: no sentence shares a word of language {options.language!r} with a reference"
        print(f"{options.name}: {problem}; set --language", file=sys.stderr)
    print(written_line(options.name, len(documents), target, options.language))


def _chosen_options(name: str, options: Namespace) -> dict[str, Any]:
    """Return the options for baseline `name` on the command line; a `UserError` for one that it does not have."""
    chosen = {option: options[option] for option in OPTIONS if options[option] is not None}
    available = [option for option in OPTIONS if option in inspect.signature(BASELINES[name]).parameters]
    if refused := [option for option in chosen if option not in available]:
        others = ", ".join(f"--{other}" for other in available)
        raise UserError(f"{name} has no option --{refused[0]}; it has {others}")
    if chosen.get("threshold") == "none":  # "none" is a value; None means that the option is absent
        chosen["threshold"] = None
    return chosen
