"""Drawing for `precis attention`: attention between EDUs with and without discourse, the tree and the summary."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from matplotlib.figure import Figure

from datamodules.corpora.corpus import as_document
from datamodules.corpora.texts import Texts
from datamodules.documents import UserError
from datamodules.text.lines import shorten
from lightning_modules.rstformer.attention_maps import EduAttention, edu_attention
from lightning_modules.rstformer.module import RSTformer
from precis.discourse.tree_drawing import draw_svg
from precis.files.figures import heat_map, html_page, new_figure, png_element
from precis.files.templates import template
from precis.runs.run_folder import load_run

_MOST = 200  # EDUs in a picture
_TITLE = 28  # maximum length of the title of a head


def draw_attention(run: Path, texts: Sequence[tuple[str, str]], out: Path) -> None:
    """Draw the attention of an RSTformer's run, which must see discourse, in a text with its id, to a folder."""
    with TemporaryDirectory(prefix="precis-") as cache:
        loaded = load_run(run, corpus=Texts(texts), cache_dir=cache, max_eval=None)
        if not isinstance(loaded.model, RSTformer) or loaded.model.ablation == "no_discourse":
            raise UserError(f"{run}: not the run of an RSTformer with discourse; give one")
        if loaded.model.network.adapters is not None:
            reason = "its discourse is in the weights' update, not in attention"
            raise UserError(f"{run}: {reason}; give a run without model.encoder.lora_rank")
        out.mkdir(parents=True, exist_ok=True)
        write(loaded.model.eval(), loaded.data, out)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


def write(model: RSTformer, data, out: Path) -> None:
    """Write pictures and page of the only test document of a DataModule; a `UserError` if the model reads no EDU."""
    (batch,) = data.test_dataloader()
    (row,) = data.features("test")
    if not row["parse"]:
        raise UserError(f"document {row['id']!r} is empty; give a text")
    parse, text = data.cache.get(row["parse"], row["id"]), as_document(data.documents("test")[0]).text
    edus = int(batch.token_edu.max()) + 1  # those that the model reads
    if not edus:
        raise UserError(f"document {row['id']!r}: no EDU begins within data.max_source; choose another text")
    maps = edu_attention(
        model.network, edus, input_ids=batch.source, attention_mask=batch.source_mask,
        global_attention_mask=batch.global_mask, discourse=model.discourse(batch),
    )  # fmt: skip
    pictures = []  # image and caption of each layer
    for layer in range(len(maps.without)):
        relations = relations_of(model, layer, parse.relations)
        path = out / f"layer{layer + 1}.png"
        layer_figure(maps, layer, relations).savefig(path, format="png", dpi=80)
        caption = "; ".join(f"head {head + 1}: {names}" for head, names in enumerate(relations))
        pictures.append((png_element(path.read_bytes(), "attention"), caption))
    (summary,) = model.summarize(batch)
    tree = draw_svg(parse.best_tree(), [text[start:end] for start, end in parse.edus.tolist()])
    (out / "tree.svg").write_text(tree, encoding="utf-8")
    note = cut_off(parse.size, edus, min(edus, _MOST))
    macros = template("precis.summarizing", "pages.html").module
    body = macros.attention(tree, summary.sentences, note, pictures)
    (out / "page.html").write_text(html_page(row["id"], body), encoding="utf-8")


def cut_off(size: int, num_read: int, num_drawn: int) -> str:
    """Return a note on EDUs that are truncated, or whose attention is not drawn."""
    parts = []
    if num_read < size:
        parts.append(f"The model reads the first {num_read} of {size} EDUs; the others are in the tree alone.")
    if num_drawn < num_read:
        parts.append(f"The maps show the first {num_drawn} of these {num_read} EDUs.")
    parts.append("Colours end at the 99th percentile of a head's weights; an arrow at the scale tells of larger ones.")
    return " ".join(parts)


def relations_of(model: RSTformer, layer: int, names: Sequence[str]) -> list[str]:
    """Return the relations of each head of a layer, by descending weight."""
    injections = model.network.injections
    if not len(injections) or model.ablation == "no_labels":
        return []
    injection = injections[layer % len(injections)]
    weights = injection.fixed_weights if injection.weights is None else injection.weights
    ranked = torch.argsort(weights, dim=1, descending=True, stable=True).tolist()  # [H, R]
    return [", ".join(names[r] for r in order if row[r] != 0) for row, order in zip(weights, ranked)]


def layer_figure(maps: EduAttention, layer: int, relations: Sequence[str] = (), most: int = _MOST) -> Figure:
    """Return a figure with a column per head: attention with discourse, without, and the difference.

    Both kinds share the scale of a head, clipped at the 99th percentile, so that outliers do not hide small values.
    The titles have the relations of each head, if any; at most `most` EDUs are drawn.
    """
    rows = [maps.with_discourse[layer, :, :most, :most], maps.without[layer, :, :most, :most]]
    rows.append(rows[0] - rows[1])
    heads, edus = rows[0].shape[:2]
    figure = new_figure(2.6 * heads + 1.2, 8.2)
    axes = figure.subplots(3, heads, squeeze=False, sharex=True, sharey=True)
    titles = ("with discourse", "without", "difference")
    for head in range(heads):
        top = float(torch.stack(rows[:2])[:, head].flatten().quantile(0.99)) or 1.0
        widest = float(rows[2][head].abs().max()) or 1.0
        for number, values in enumerate(rows):
            scale = {"vmin": -widest, "vmax": widest, "cmap": "RdBu_r"} if number == 2 else {"vmin": 0, "vmax": top}
            panel = axes[number][head]
            image = heat_map(panel, values[head].numpy(), **scale)
            if number != 1:
                cut_off = "max" if number == 0 and float(torch.stack(rows[:2])[:, head].max()) > top else "neither"
                figure.colorbar(image, ax=axes[:2, head] if number == 0 else panel, shrink=0.8, extend=cut_off)
            if number == 0:
                names = f"\n{shorten(relations[head], _TITLE)}" if relations else ""
                panel.set_title(f"head {head + 1}{names}", parse_math=False)
            if head == 0:
                panel.set_ylabel(f"{titles[number]}\nattending EDU")
        axes[2][head].set_xlabel("attended EDU")
    total = maps.without.shape[-1]
    extent = f"{edus} EDUs" if edus == total else f"the first {edus} of {total} EDUs"
    figure.suptitle(f"layer {layer + 1}: attention between {extent}")
    return figure
