"""The models of the playground: loaded once, then asked for summaries of one document at a time."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import torch
from jsonargparse import ArgumentError

from datamodules.corpora.corpus import as_document
from datamodules.corpora.texts import Records
from datamodules.documents import UserError
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.matchsum import MatchSum
from precis.config.shipped_models import shipped_folder
from precis.playground.cards import MACROS, sections
from precis.runs.run_folder import Run, run_documents
from precis.summarizing.summarizing import changed_options, load_model, quiet_progress

EXAMPLE = Path(__file__).with_name("example.txt")
_DOCUMENTS = 200  # number of documents of the corpus that can be picked


class Playground:
    """Models, and the documents of the first trained one's corpus.

    Args:
        paths: names of models of the suite, run folders, folders of `precis export`, or models of Hugging Face.
        split: split of the corpus; by default test, or val where there is none.
        max_characters: maximal number of characters of a text.

    Raises:
        UserError: if a path is no model that summarizes.
    """

    def __init__(self, paths: Sequence[str], split: str | None = None, max_characters: int = 20_000) -> None:
        self.max_characters = max_characters
        self._folder = TemporaryDirectory(prefix="precis-")
        self._lock = Lock()  # because options of a model are changed during a summary
        self.runs: dict[str, Run] = {}
        last_names = [Path(path).name for path in paths]
        for path, last_name in zip(paths, last_names):
            name = last_name if last_names.count(last_name) == 1 else str(path)
            self.runs[name] = load_model(path, cache_dir=self._folder.name, max_eval=None)
        models = zip(paths, self.runs.values())
        trained = [(path, run) for path, run in models if run.config and not shipped_folder(path)]
        self.documents = self._documents(*trained[0], split) if trained else {}

    def _documents(self, folder: str, run: Run, split: str | None) -> dict[str, dict[str, Any]]:
        """Return documents of the first run's corpus by id; print the reason to stderr if it cannot be read."""
        corpus = run.data.corpus
        try:
            split = split or ("test" if "test" in corpus.splits() else "val")
            # minutes, where the corpus has to be built first
            print(f"{folder}: reading the documents of its {split} split", file=sys.stderr, flush=True)
            with quiet_progress():
                table = run_documents(Path(folder), split)
        except (UserError, ArgumentError, OSError) as error:
            reason = " ".join(str(error).split())
            print(f"{folder}: no documents of its corpus can be picked ({reason})", file=sys.stderr)
            return {}
        rows = table.select(range(min(_DOCUMENTS, len(table))))
        return {row["id"]: row for row in rows.to_list()}

    def pick(self, name: str | None) -> tuple[str, str]:
        """Return the text and the first reference of a document of the corpus; without one, an example."""
        if not name or name not in self.documents:
            return EXAMPLE.read_text(encoding="utf-8")[: self.max_characters], ""
        document = as_document(self.documents[name])
        reference = "\n".join(document.references[0]) if document.references else ""
        return document.text[: self.max_characters], reference

    def summarize(self, text: str, reference: str, names: Sequence[str], beam_size: int) -> str:
        """Return the summaries of a text by some of the models, as HTML; an error as HTML too."""
        try:
            self._check(text, reference, names)
            cards = [self._card(number, name, text, reference, beam_size) for number, name in enumerate(names)]
            return MACROS.cards_page(cards)
        except (ValueError, OSError, RuntimeError) as error:
            return MACROS.error_box(" ".join(str(error).split()))

    def _check(self, text: str, reference: str, names: Sequence[str]) -> None:
        if not text.strip():
            raise UserError("There is no text: paste one, or pick a document.")
        for kind, value in (("text", text), ("reference", reference)):
            if len(value) > self.max_characters:
                limit = f"{self.max_characters:,}"
                raise UserError(f"The {kind} has {len(value):,} characters; give at most {limit} (--max_characters).")
        if not names:
            raise UserError("No run is chosen: tick at least one.")

    def _card(self, number: int, name: str, text: str, reference: str, beam_size: int) -> str:
        """Return the card of one model."""
        run = self.runs[name]
        record = {"id": "text", "document": text} | ({"summary": reference} if reference.strip() else {})
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with TemporaryDirectory(dir=self._folder.name) as cache, self._lock, quiet_progress():
            data = run.data.with_corpus(Records([record]), Path(cache), 1)
            (batch,) = data.test_dataloader()
            batch = batch.to(device)
            run.model.to(device)
            options = {} if isinstance(run.model, (BertSum, MatchSum)) else {"beam_size": beam_size}
            with changed_options(run.model, options):
                (summary,) = run.model.scored(run.model.summarize(batch))
                parts = sections(f"card{number}", run.model, data, batch, summary)
        return MACROS.card(name, type(run.model).__name__, parts)
