"""Sources of outputs from the corpus of a run."""

from pathlib import Path


def sources_of_run(run: str, split: str) -> dict[str, list[str]]:
    """Return the sentences of the documents of a run's corpus, by id.

    Raises:
        UserError: if the folder is not a run of a summarizer, or lacks the split.
    """
    from datamodules.corpora.corpus import as_document  # these import torch and Lightning
    from precis.runs.run_folder import run_documents

    rows = run_documents(Path(run), split)
    return {document.id: document.sentences for document in map(as_document, rows)}
