"""Extraction with discourse: which sentences do human summaries draw on, and does discourse structure tell?

    python -m experiments.studies.discourse_extraction.run --train gum/train.jsonl.gz --val gum/val.jsonl.gz \\
        --parsers runs/cv
    python -m experiments.studies.discourse_extraction.run --corpus '[scitldr/train.jsonl.gz]' --parser mpnet \\
        --parses parses

Sentences are ranked by a linear model or by one layer of attention over frozen sentence vectors, in ten folds, with and
without discourse. The documents are

- those of a treebank with summaries and gold trees, GUM. PARSERS holds the parsers of the folds of
  `python -m experiments.studies.parser_training.cross_validation` or `... class_temperature`,
  so that no document is parsed by a
  parser that was trained on it;
- or those of a corpus, with the parses that `precis parse CORPUS --parser PARSER --out PARSES` wrote.

Each combination of inputs, arm and seed has a file of its own in OUT, so that the same command continues where it was
stopped. At the end OUT/table.md has means, differences and intervals.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import PositiveInt

from datamodules.atomic_write import atomic_write
from datamodules.documents import UserError
from datamodules.text.hashing import text_digest
from datamodules.text.lines import counted
from experiments.studies.discourse_extraction.documents import (
    SentenceFeatures,
    SummarizedDocument,
    content_f1,
    load_parser,
    of_length,
    out_of_fold,
    places_of,
    read_documents,
    request_of,
    sentence_vectors,
    structures_of,
)
from experiments.studies.discourse_extraction.feature_files import features_digest, stored_features
from experiments.studies.discourse_extraction.linear import ridge_scores
from experiments.studies.discourse_extraction.parsed_corpora import features_of_corpus, read_corpus, with_scores
from experiments.studies.discourse_extraction.ranker import INPUTS
from experiments.studies.discourse_extraction.report import table
from experiments.studies.discourse_extraction.training import (
    ARMS,
    ARMS_BY_NAME,
    FOLDS,
    Arm,
    Documents,
    batches_of,
    cross_validate,
    in_folds,
    measure,
)
from experiments.studies.parser_training.folds import FoldData, read_recipe
from lightning_modules.discourse_parser.parser import DiscourseParser
from precis.config.parsers import load_parser as load_any_parser
from precis.files.data_files import read_json
from precis.statistics.statistics import Array

RECIPE = Path(__file__).parents[2] / "configs" / "discourse_parser" / "minilm.yaml"


class Source(NamedTuple):
    """Documents, and how their features are made.

    Attributes:
        documents: documents with summaries, of suitable length.
        settings: what the features depend on besides the documents, as JSON values.
        compute: function that computes the features.
    """

    documents: list[SummarizedDocument]
    settings: list[object]
    compute: Callable[[], list[SentenceFeatures]]


def corpus_source(options: Namespace) -> Source:
    """Return the documents of a corpus, with the parses of a cache."""
    documents = of_suitable_length(read_corpus([Path(file) for file in options.corpus]), options)
    parser = load_any_parser(options.parser, band=options.band)
    compute = partial(features_of_corpus, documents, parser, Path(options.parses), options.encoder)
    return Source(documents, [options.encoder, parser.fingerprint, options.band], compute)


def treebank_source(options: Namespace) -> Source:
    """Return the documents of a treebank; they are parsed by parsers that have not seen them.

    Raises:
        UserError: if parsers are missing.
    """
    documents = of_suitable_length(read_documents([Path(options.train), Path(options.val)]), options)
    paths = Path(options.parsers).glob("fold-*")
    folders = sorted((path for path in paths if path.is_dir()), key=lambda folder: int(folder.name[5:]))
    data, treebanks, number_of_folds = division_of(options, len(folders))
    if len(folders) < 2 or [folder.name for folder in folders] != [f"fold-{n}" for n in range(number_of_folds)]:
        there = ", ".join(folder.name for folder in folders) or "none"
        raise UserError(
            f"{options.parsers}: needs the parsers fold-0, fold-1, ... of all folds "
            f"({number_of_folds or 'at least 2'}), and has {there}; train the others as --help says"
        )
    folds = [FoldData(number, number_of_folds, treebanks, **data) for number in range(number_of_folds)]
    held_out = [[document.id for document in fold.documents("held_out")] for fold in folds]
    folder_of = out_of_fold(folders, held_out, [row.document.id for row in documents])
    parsers = [load_parser(folder) for folder in folders]
    settings = [options.encoder, [parser.fingerprint for parser in parsers], held_out]
    parser_of = {id: parsers[folders.index(folder)] for id, folder in folder_of.items()}
    return Source(documents, settings, partial(treebank_features, documents, parser_of, options.encoder))


def of_suitable_length(documents: list[SummarizedDocument], options: Namespace) -> list[SummarizedDocument]:
    """Return the documents of suitable length, see `of_length`, and print how many are skipped.

    Raises:
        UserError: if there are fewer documents than folds.
    """
    suitable = of_length(documents, options.number, options.max_sentences)
    if skipped := len(documents) - len(suitable):
        print(
            f"skipped: {counted(skipped, 'document')} of more than {options.max_sentences} sentences or with none to "
            "leave out",
            file=sys.stderr,
        )
    if len(suitable) < FOLDS:
        raise UserError(
            f"{counted(len(suitable), 'document')} of suitable length, see --number and --max_sentences; {FOLDS} folds "
            "need as many"
        )
    return suitable


def treebank_features(
    documents: Sequence[SummarizedDocument], parser_of: dict[str, DiscourseParser], encoder: str
) -> list[SentenceFeatures]:
    """Parse and encode documents, each by its own parser."""
    features = []
    for row, vectors in zip(documents, sentence_vectors(documents, encoder)):
        target = torch.tensor([content_f1(sentence, row.summaries) for sentence in row.sentences])
        structures = structures_of(row.document, parser_of[row.document.id].parse(request_of(row.document)))
        features.append(SentenceFeatures(vectors, places_of(row.document), target, structures))
        print(f"{row.document.id}: {counted(len(target), 'sentence')}", file=sys.stderr, flush=True)
    return features


def division_of(options: Namespace, folders: int) -> tuple[dict[str, Any], list[Path], int]:
    """Return how the parsers' documents were divided: arguments of the data, treebanks, and number of folds.

    `parser_training.cross_validation` records all three; `class_temperature` divides the training documents.

    Args:
        options: options of the command.
        folders: number of folders of parsers.
    """
    settings = Path(options.parsers) / "settings.json"
    if not settings.is_file():
        return read_recipe(Path(options.recipe))["data"], [Path(options.train)], folders
    recorded = read_json(settings, data=dict, treebanks=list[str], folds=int)
    return recorded["data"], [Path(path) for path in recorded["treebanks"]], recorded["folds"]


def scores_of(options: Namespace, corpus: Documents, folder: Path) -> dict[tuple[str, str], Array]:
    """Train and score what has no file yet in the folder; return the measures of all documents, by inputs and arm.

    All seeds of an arm are trained together, in the same order in every arm, so that arms are paired by seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scores = {}
    for name in options.arms:
        arm, batches = ARMS_BY_NAME[name], None
        for inputs in options.inputs:
            if arm.structure is None and inputs == "discourse alone":
                continue  # there is nothing to tell sentences apart
            kind = "linear" if options.ranker == "linear" else f"{options.epochs}"
            prefix = "planted " * options.planted + f"{inputs} {name} {kind}"
            paths = [folder / f"{re.sub('[ ,]+', '-', prefix)}-{seed}.json" for seed in options.seeds]
            if not all(path.is_file() for path in paths):
                batches = batches or batches_of(arm, corpus, options.planted)
                start = time.process_time()
                if options.ranker == "linear":
                    ranked = [ridge_scores(inputs, batches, corpus, arm.by_relation)]
                else:
                    ranked = cross_validate(arm, inputs, batches, corpus, options.seeds, options.epochs)
                for path, of_seed in zip(paths, ranked):
                    measured = zip(corpus.documents, measure(of_seed, corpus, options.planted, options.number))
                    rows = {row.document.id: values for row, values in measured}
                    atomic_write(path, json.dumps(rows) + "\n")
                print(f"{prefix}: {time.process_time() - start:.0f} s", file=sys.stderr, flush=True)
            stored = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            runs = [[rows[row.document.id] for row in corpus.documents] for rows in stored]
            scores[inputs, name] = np.array(runs)                                     # [R, N, M]
    return dict(sorted(scores.items(), key=lambda item: INPUTS.index(item[0][0])))


def _described(corpus: Documents, number: int | None) -> str:
    sentences = sum(len(row.target) for row in corpus.features)
    in_order = [-torch.arange(len(row.target), dtype=torch.float) for row in corpus.features]
    _, rouge1, rouge2 = np.mean(measure(in_order, corpus, number=number), axis=0)
    lead = f"first sentences: ROUGE-1 {rouge1:.2f}, ROUGE-2 {rouge2:.2f}"
    return f"{counted(len(corpus.features), 'document')}, {counted(sentences, 'sentence')}; {lead}\n\n"


def _suits(arm: Arm, options: Namespace) -> bool:
    """Return whether documents and ranker have what an arm needs, so that it is no repetition of another one."""
    if options.corpus and str(arm.structure).startswith("gold"):
        return False
    # attention reads every relation in any case
    return not (arm.of_attention if options.ranker == "linear" else arm.by_relation)


def main(arguments: Sequence[str] | None = None) -> None:
    """Rank sentences with and without discourse; combinations that are there already are kept."""
    parser = ArgumentParser(prog="python -m experiments.studies.discourse_extraction.run", description=main.__doc__)
    parser.add_argument("--train", type=str | None, default=None, help="treebank with summaries")
    parser.add_argument("--val", type=str | None, default=None, help="treebank with further documents and summaries")
    parser.add_argument("--parsers", type=str, default="runs/class_temperature", help="folder of fold-0, fold-1, ...")
    parser.add_argument(
        "--recipe", type=str, default=str(RECIPE), help="config of the parsers, if their folder has no settings.json"
    )
    parser.add_argument("--corpus", type=list[str], default=[], help="data files of a corpus, instead of a treebank")
    parser.add_argument("--parser", type=str, default="default", help="parser of the corpus, as in `precis parse`")
    parser.add_argument("--parses", type=str, default="parses", help="--out of `precis parse`")
    parser.add_argument("--band", type=int, default=128, help="--band of `precis parse`")
    parser.add_argument(
        "--scores", type=list[str], default=[],
        help="predictions.jsonl of extractive runs, each on documents that it has not seen: another input with places",
    )
    parser.add_argument("--encoder", type=str, default="minilm", help="encoder of sentences; stays frozen")
    parser.add_argument("--out", type=str, default="runs/discourse_extraction", help="folder of features and scores")
    parser.add_argument("--arms", type=list[str] | None, default=None, help="all that the documents allow by default")
    parser.add_argument("--inputs", type=list[str], default=list(INPUTS))
    parser.add_argument("--seeds", type=list[int], default=[1, 2, 3, 4, 5])
    parser.add_argument("--epochs", type=int, default=5, help="number of passes over the training documents")
    parser.add_argument(
        "--number", type=PositiveInt | None, default=3,
        help="number of sentences to extract; null for as many as the summaries have",
    )
    parser.add_argument(
        "--max_sentences", type=int, default=100, help="maximal number of sentences; longer documents are skipped"
    )
    parser.add_argument(
        "--ranker", type=Literal["attention", "linear"], default="attention",
        help="kind of ranker; linear does not depend on seeds",
    )
    parser.add_argument("--planted", type=bool, default=False, help="test of the ranker: labels from the gold tree")
    options = parser.parse_args(arguments)
    of_treebank = bool(options.train or options.val)
    if of_treebank == bool(options.corpus) or (of_treebank and not (options.train and options.val)):
        parser.error("give either --train and --val (a treebank with summaries), or --corpus")
    if options.corpus and options.planted:
        parser.error("--planted takes its labels from gold trees, which a --corpus does not have")
    suitable = [arm.name for arm in ARMS if _suits(arm, options)]
    options.arms = suitable if options.arms is None else options.arms
    for kind, names, known in (("arm", options.arms, suitable), ("inputs", options.inputs, INPUTS)):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no {kind} {unknown[0]!r} of these documents and this ranker; there are {'; '.join(known)}")
    name = "planted.md" if options.planted else "table.md"
    if options.ranker == "linear":
        options.seeds, name = [0], f"linear_{name}"
    out = Path(options.out)
    try:
        source = (corpus_source if options.corpus else treebank_source)(options)
        digest = features_digest(source.documents, source.settings)
        features = stored_features(
            out / f"features-{digest[:12]}.safetensors", source.documents, digest, source.compute
        )
        if options.scores:
            features = with_scores(source.documents, features, [Path(file) for file in options.scores])
        corpus = in_folds(source.documents, features)
        contents = [Path(file).read_text(encoding="utf-8") for file in options.scores]
        settings = [digest, contents, options.number, options.max_sentences, options.seeds]
        folder = out / f"scores-{text_digest(json.dumps(settings))[:12]}"
        page = _described(corpus, options.number) + table(scores_of(options, corpus, folder))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    atomic_write(Path(options.out) / name, page)
    print(page)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
