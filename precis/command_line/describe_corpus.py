"""Implementation of `precis corpus`: counts, lengths, overlaps and first examples of a corpus."""

import json
from dataclasses import asdict

from jsonargparse import Namespace

from datamodules.cache_folder import default_cache
from datamodules.corpora.corpus import Corpus, build_documents
from datamodules.corpora.describe import describe, print_description
from datamodules.corpora.overlap import find_overlaps


def describe_corpus(corpus: Corpus, options: Namespace) -> None:
    """Print the description of every split of a corpus, which has at least one, by the options of `precis corpus`."""
    cache = options.cache_dir or default_cache()
    splits = corpus.splits()
    described = [
        describe(
            corpus, split, cache, on_bad_record=options.on_bad_record, examples=options.examples,
            num_proc=options.num_proc,
        )
        for split in splits
    ]  # fmt: skip
    building = {"on_bad_record": options.on_bad_record, "num_proc": options.num_proc}
    tables = {split: build_documents(corpus, split, cache, **building) for split in splits}
    overlaps = find_overlaps(tables, options.duplicates, options.num_proc)
    for description in described:
        description["overlaps"] = [
            overlap._asdict() for overlap in overlaps if overlap.split == description["split"]
        ]
    if options.json:
        print(json.dumps(described, ensure_ascii=False, indent=1, default=asdict))
    else:
        print_description(described)
