"""Any model that summarizes, by a name or folder: a run, an exported model, or a model of Hugging Face."""

from pathlib import Path
from typing import Any

from datamodules.corpora.corpus import Corpus
from datamodules.documents import UserError
from precis.runs.run_folder import Run, load_run
from precis.sharing.hub import find_run
from precis.summarizing.hugging_face import HuggingFaceSummarizer, TextDocuments
from precis.summarizing.pretrained_options import PretrainedOptions


def load_model(
    name: str | Path,
    checkpoint: Path | None = None,
    corpus: Corpus | None = None,
    options: PretrainedOptions = PretrainedOptions(),
    **changes: Any,
) -> Run:
    """Load a model that summarizes, with documents for it.

    Args:
        name: folder of a run or exported model, its name on the hub, or name or folder of a model of Hugging Face.
        checkpoint: another checkpoint of a run than its best one.
        corpus: documents to read; by default those of the run.
        options: options of a model of Hugging Face.
        changes: changed arguments of a run's DataModule; other models have `cache_dir`, `eval_batch_size` and
            `on_bad_record` of these.

    Raises:
        UserError: if there is no such model, or an option is not one of this kind of model.
    """
    folder = find_run(name)
    if folder is not None:
        changed = [key for key, value in vars(options).items() if value != getattr(PretrainedOptions(), key)]
        if others := [key for key in changed if key != "generation"]:
            raise UserError(f"{others[0]}: an option of models of Hugging Face, which {name} is not; leave it out")
        return load_run(folder, checkpoint, corpus=corpus, **changes)
    if checkpoint is not None:
        raise UserError(f"{name}: a model of Hugging Face, which has no other checkpoints; leave {checkpoint} out")
    changes.pop("max_eval", None)
    documents = TextDocuments(corpus, language=options.language, **changes)
    return Run(HuggingFaceSummarizer(str(name), options), documents, {})
