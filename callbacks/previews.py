"""Previews of summaries at each validation: text, copied words, attention and coverage."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from jsonargparse.typing import NonNegativeInt, PositiveInt
from matplotlib import font_manager, pyplot, rc_context
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_warn

from callbacks.self_critical import SelfCritical
from datamodules.atomic_write import atomic_write
from datamodules.text.language import space_after_word
from datamodules.text.lines import json_line
from lightning_modules.summarizer import Summary

# Matplotlib's own font has Latin, Cyrillic, Greek, Arabic and Hebrew letters; fonts with these names have others.
_OTHER_SCRIPTS = re.compile(r"CJK|WenQuanYi|PingFang|Hiragino|YaHei|SimHei|Noto Sans|Unifont|Arial Unicode")
_MISSING_GLYPH = re.compile(r"Glyph \d+ \(.*\) missing from font")


def marked(summary: Summary, opening: str = "[", closing: str = "]") -> str:
    """Return the summary with marks around runs of copied words; plain text if copied words are unknown."""
    if summary.copied is None or summary.words is None:
        return summary.text
    text = space = ""  # the space after the previous word: none after a Chinese character
    inside = False
    for word, is_copied in zip(summary.words, summary.copied):
        if inside and not is_copied:
            text += closing
        text += space + (opening if is_copied and not inside else "") + word
        inside = is_copied
        space = space_after_word(word)
    return text + closing * inside  # a last mark if the summary ends with copied words


@contextmanager
def fonts_of_all_scripts() -> Iterator[None]:
    """In a block, draw characters that Matplotlib's font lacks with installed fonts; warn once if none has them."""
    families = ["sans-serif", *filter(_OTHER_SCRIPTS.search, font_manager.get_font_names())]  # tried in order
    with warnings.catch_warnings(record=True) as recorded, rc_context({"font.family": families}):
        yield
    # one warning replaces Matplotlib's warning for each missing character; other warnings are issued again
    unrelated = [warning for warning in recorded if not _MISSING_GLYPH.match(str(warning.message))]
    for warning in unrelated:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if len(unrelated) < len(recorded):
        _warn_of_missing_fonts()


@cache  # once per process
def _warn_of_missing_fonts() -> None:
    rank_zero_warn(
        "pictures have boxes in place of characters that no installed font has; install a font of that script, such as "
        "Noto Sans CJK, and remove Matplotlib's cache of fonts (~/.cache/matplotlib)"
    )


@fonts_of_all_scripts()
def draw_attention(
    path: Path, source: list[str], target: list[str], attention: np.ndarray, coverage: np.ndarray
) -> None:
    """Draw attention [T, S] of summary words to document words as a heat map, with the final coverage [S] below."""
    # inches: 0.16 per document word, 0.2 per summary word, and the axes; if 24 do not suffice, some words have no label
    width = min(24.0, 2.0 + 0.16 * len(source))
    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(width, 1.8 + 0.2 * len(target)), sharex=True, height_ratios=[max(2, len(target) / 4), 1],
        layout="constrained",  # the heat map has at least twice the height of the bars
    )  # fmt: skip
    image = top.imshow(attention, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    top.set_yticks(range(len(target)), target, fontsize=7, parse_math=False)  # "$" starts no formula
    top.set_ylabel("summary")
    figure.colorbar(image, ax=top, label="attention", pad=0.01)
    bottom.bar(range(len(source)), coverage, width=1.0, color="tab:orange")
    bottom.axhline(1, color="grey", linewidth=0.5)  # a word that is read once has a coverage of 1
    bottom.set_ylabel("coverage")
    step = max(1, round(len(source) / (width * 7)))  # an inch has room for 7 labels of this size
    bottom.set_xticks(range(0, len(source), step), source[::step], rotation=90, fontsize=6, parse_math=False)
    bottom.set_xlabel("document" + (f" (every {step}. word)" if step > 1 else ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


class Previews(Callback):
    """Logs summaries of the first validation documents at each validation during training.

    They go to a table in W&B; heat maps of attention and coverage go to `folder`. With `SelfCritical`, samples of the
    latest batch go to another table with their rewards, also in `folder/step<N>/samples.jsonl`.

    Args:
        folder: folder of the heat maps, `folder/step<N>/<number>.png`.
        documents: number of documents.
        heat_maps: number of heat maps; none for models without attention over words.
    """

    def __init__(self, folder: Path, documents: PositiveInt = 5, heat_maps: NonNegativeInt = 2) -> None:
        self.folder = Path(folder)
        self.documents = documents
        self.heat_maps = heat_maps

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log and write previews on rank 0, by the weights of the validation, such as those of `WeightAveraging`."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        data = trainer.datamodule
        features = data.features("val")
        batch = data.collate([features[i] for i in range(min(self.documents, len(features)))])
        batch = batch.to(pl_module.device)
        # all ranks decode, since each may hold a part of the weights (FSDP); the first one writes
        with trainer.precision_plugin.val_step_context():
            summaries = pl_module.scored(pl_module.summarize(batch))
            maps = min(self.heat_maps, len(summaries)) if hasattr(pl_module, "attention_map") else 0
            attentions = [pl_module.attention_map(batch, number) for number in range(maps)]
        if not trainer.is_global_zero:
            return
        loggers = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        rows = []
        for summary in summaries:  # `marked` sets copied words in brackets; no score without a reference
            reference = " ".join(summary.references[0]) if summary.references else ""
            rows.append([summary.id, reference, marked(summary), summary.scores.get("rouge1", float("nan"))])
        for logger in loggers:
            logger.log_table("previews", columns=["id", "reference", "summary", "rouge1"], data=rows)
        folder = self.folder / f"step{trainer.global_step:06d}"
        for callback in trainer.callbacks:
            if isinstance(callback, SelfCritical) and (samples := callback.last_samples):
                self._write_samples(folder, samples, loggers)
        for number, attention in enumerate(attentions):
            path = folder / f"{number}.png"
            draw_attention(path, *attention)  # words of document and summary, attention, coverage
            for logger in loggers:
                logger.log_image(f"attention/{number}", [str(path)])

    def _write_samples(self, folder: Path, samples: list[dict[str, str | float]], loggers: list[WandbLogger]) -> None:
        """Write and log the samples of the first documents of a training batch, from `SelfCritical.last_samples`."""
        first_ids = list(dict.fromkeys(sample["id"] for sample in samples))[: self.documents]  # each id once
        rows = [sample for sample in samples if sample["id"] in first_ids]
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "samples.jsonl", "".join(map(json_line, rows)))
        for logger in loggers:
            logger.log_table("samples", columns=list(rows[0]), data=[list(row.values()) for row in rows])
