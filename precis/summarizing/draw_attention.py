"""Drawing for `precis attention`: attention between EDUs with and without discourse, the tree and the summary."""

from base64 import b64encode
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
from precis.files.figures import heat_map, html_page, new_figure
from precis.files.templates import template
from precis.runs.run_folder import load_run

_MAX_EDUS = 200  # elementary discourse units in a picture, where more would be narrower than a pixel
_MAX_TITLE = 28  # characters above a head's map, which is 2.6 inches wide


def draw_attention(run: Path, texts: Sequence[tuple[str, str]], out: Path) -> None:
    """Draw an RSTformer's attention in `texts`, one pair (id, text), to folder `out`; a `UserError` for other runs."""
    with TemporaryDirectory(prefix="precis-") as cache:
        loaded = load_run(run, corpus=Texts(texts), cache_dir=cache, max_eval=None)  # reads `texts` in full
        if not isinstance(loaded.model, RSTformer) or loaded.model.ablation == "no_discourse":
            raise UserError(f"{run}: not the run of an RSTformer with discourse; give one")
        if loaded.model.network.adapters is not None:  # RST-LoRA
            reason = "its discourse is in the weights' update, not in attention"
            raise UserError(f"{run}: {reason}; give a run without model.encoder.lora_rank")
        out.mkdir(parents=True, exist_ok=True)
        write(loaded.model.eval(), loaded.data, out)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


def write(model: RSTformer, data, out: Path) -> None:
    """Write layerN.png, tree.svg and page.html of the only test document; a `UserError` if the model reads no EDU."""
    (batch,) = data.test_dataloader()
    (features,) = data.features("test")
    if not features["parse"]:  # key of its discourse parse in the cache; empty for an empty document
        raise UserError(f"document {features['id']!r} is empty; give a text")
    parse = data.cache.get(features["parse"], features["id"])
    text = as_document(data.documents("test")[0]).text
    num_edus = int(batch.token_edu.max()) + 1  # number of EDUs that the model reads; -1 is no EDU, so 0 for none
    if not num_edus:
        raise UserError(f"document {features['id']!r}: no EDU begins within data.max_source; choose another text")
    maps = edu_attention(
        model.network, num_edus, input_ids=batch.source, attention_mask=batch.source_mask,
        global_attention_mask=batch.global_mask, discourse=model.discourse(batch),
    )  # fmt: skip
    pictures = []  # PNG in base64 and caption of each layer
    for layer in range(len(maps.without)):  # maps with and `without` discourse: [layers, heads, EDUs, EDUs]
        relations = relations_of(model, layer, parse.relations)
        path = out / f"layer{layer + 1}.png"
        layer_figure(maps, layer, relations).savefig(path, format="png", dpi=80)  # about 200 pixels for each head
        caption = "; ".join(f"head {head + 1}: {names}" for head, names in enumerate(relations))
        pictures.append((b64encode(path.read_bytes()).decode(), caption))
    (summary,) = model.summarize(batch)
    tree = draw_svg(parse.best_tree(), [text[start:end] for start, end in parse.edus.tolist()])  # texts of EDUs
    (out / "tree.svg").write_text(tree, encoding="utf-8")
    macros = template("precis.summarizing", "pages.html").module
    counts = (parse.size, num_edus, min(num_edus, _MAX_EDUS))  # EDUs of the document, those read, those drawn
    body = macros.attention(tree, summary.sentences, pictures, *counts)
    (out / "page.html").write_text(html_page(features["id"], body), encoding="utf-8")


def relations_of(model: RSTformer, layer: int, names: Sequence[str]) -> list[str]:
    """Return each head's relations as a text such as "cause, contrast", by descending weight; [] if heads have none."""
    injections = model.network.injections  # modules that add discourse to the attention
    if not len(injections) or model.ablation == "no_labels":  # all heads read the mean over relations
        return []
    injection = injections[layer % len(injections)]  # one for each layer, or one that all layers share
    weights = injection.fixed_weights if injection.weights is None else injection.weights  # [heads, names]; None: fixed
    ranked = torch.argsort(weights, dim=1, descending=True, stable=True).tolist()  # [heads, names]
    return [", ".join(names[r] for r in order if head[r] != 0) for head, order in zip(weights, ranked)]  # 0: not read


def layer_figure(maps: EduAttention, layer: int, relations: Sequence[str]) -> Figure:
    """Return a figure with a column per head: attention with discourse, without, and the difference.

    The first two maps of a head share a scale that ends at the 99th percentile, so that outliers do not hide small
    values. Titles have the `relations` of each head, if any; the first `_MAX_EDUS` discourse units (EDUs) are drawn.
    """
    with_discourse = maps.with_discourse[layer, :, :_MAX_EDUS, :_MAX_EDUS]  # [heads, EDUs, EDUs]
    without = maps.without[layer, :, :_MAX_EDUS, :_MAX_EDUS]  # [heads, EDUs, EDUs]
    difference = with_discourse - without
    num_heads, num_edus = without.shape[:2]
    figure = new_figure(2.6 * num_heads + 1.2, 8.2)  # inches: 2.6 for each head, and room for labels
    axes = figure.subplots(3, num_heads, squeeze=False, sharex=True, sharey=True)
    for head in range(num_heads):
        both = torch.stack([with_discourse[head], without[head]])
        top = float(both.flatten().quantile(0.99)) or 1.0  # matplotlib needs a scale above 0
        largest = float(difference[head].abs().max()) or 1.0
        image = heat_map(axes[0][head], with_discourse[head].numpy(), vmin=0, vmax=top)
        arrow = "max" if float(both.max()) > top else "neither"  # an arrow at the scale for larger values
        figure.colorbar(image, ax=axes[:2, head], shrink=0.8, extend=arrow)
        heat_map(axes[1][head], without[head].numpy(), vmin=0, vmax=top)
        image = heat_map(axes[2][head], difference[head].numpy(), vmin=-largest, vmax=largest, cmap="RdBu_r")
        figure.colorbar(image, ax=axes[2][head], shrink=0.8)
        names = f"\n{shorten(relations[head], _MAX_TITLE)}" if relations else ""
        axes[0][head].set_title(f"head {head + 1}{names}", parse_math=False)  # "$" would start a formula
        axes[2][head].set_xlabel("attended EDU")
    for panel, title in zip(axes[:, 0], ("with discourse", "without", "difference")):
        panel.set_ylabel(f"{title}\nattending EDU")
    total = maps.without.shape[-1]
    extent = f"{num_edus} EDUs" if num_edus == total else f"the first {num_edus} of {total} EDUs"
    figure.suptitle(f"layer {layer + 1}: attention between {extent}")
    return figure
