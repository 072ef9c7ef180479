"""Last lines of `precis fit`, `validate` and `test`: the score beside lead-1, and the next command."""

import shlex
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.utilities import rank_zero_info

from callbacks import PredictionWriter
from callbacks.results_path import results_path
from datamodules.corpora.corpus import as_document
from datamodules.summarization import VAL, SummarizationData
from datamodules.text.lines import counted
from lightning_modules.metrics.lead import beside_lead, lead_scores
from precis.files.json_files import read_json
from precis.training.run_start import RunStart


def conclude_training(trainer: Trainer, start: RunStart) -> None:
    """Say how long a model was trained, what it scores on validation data, and how to test it."""
    best: Any = trainer.checkpoint_callback
    data = trainer.datamodule
    parts = [f"trained for {counted(trainer.global_step, 'step')}"]
    score = getattr(best, "best_model_score", None)
    if score is not None and best.monitor == "val/rouge1" and isinstance(data, SummarizationData):
        documents = map(as_document, data.documents(VAL).select(range(_validated(trainer))))
        lead = lead_scores(documents, data.language.code)
        parts.append(f"best validation {beside_lead(float(score), lead)}")
    elif score is not None:
        parts.append(f"best {best.monitor} {float(score):.4g}")
    _say(parts, ["precis", "test", "--run", str(start.folder)])


def _validated(trainer: Trainer) -> int:
    """Return the number of documents that validations summarize: whole batches of all ranks, see `Summarizer`."""
    data, limit = trainer.datamodule, trainer.lightning_module.val_summaries
    total, batch = len(data.documents(VAL)), data.eval_batch_size * trainer.world_size
    return total if limit < 0 else min(total, -(-limit // batch) * batch)


def conclude_scoring(trainer: Trainer, start: RunStart) -> None:
    """Say what a model scores on the documents that it has summarized, and what shows more of it."""
    writer = next((one for one in trainer.callbacks if isinstance(one, PredictionWriter)), None)
    if writer is None or not trainer.is_global_zero:
        return
    results = read_json(results_path(writer.path))
    rouge1 = next((value for name, value in results["scores"].items() if name.endswith("/rouge1")), None)
    if rouge1 is None:
        return
    following = {"validate": ["precis", "test", "--run", start.folder], "test": ["precis", "report", start.folder]}
    is_own = writer.path.name in ("predictions.jsonl", "predictions.val.jsonl")
    command = following[start.command] if is_own else ["precis", "evaluate", writer.path]
    _say([f"{results['split']}: {beside_lead(rouge1, results.get('lead1'))}"], list(map(str, command)))


def _say(parts: list[str], command: list[str]) -> None:
    rank_zero_info(f"{'; '.join(parts)}\nnext: {shlex.join(command)}")
