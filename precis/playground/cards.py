"""HTML of the playground: a card for each model with its summary and explanation; the markup is in cards.html."""

import base64
import re
from collections.abc import Sequence

import numpy as np
from jinja2 import Environment, PackageLoader

_PICTURE = 480  # pixels; higher pictures scroll
_ATTENDED = 12  # source words that are colored when the pointer rests on a word of the summary
AGENTS = ("#1b6ca8", "#c0561a", "#2e7d32", "#8e24aa", "#ad1457", "#5d4037")  # a color for each agent, repeated

_TEMPLATES = Environment(
    loader=PackageLoader("precis.playground", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
)
MACROS = _TEMPLATES.get_template("cards.html").module  # cards_page, card, plain_summary and so on, as functions


def copied_summary(
    prefix: str,
    source: Sequence[str],
    words: Sequence[str],
    copied: Sequence[bool],
    attention: np.ndarray,
    agents: Sequence[int] | None = None,
) -> str:
    """Return a summary with marked copied words, above the document.

    While the pointer is over a word of the summary, the words of the document with the largest attention are colored by
    weight, through rules of CSS without a script.

    Args:
        prefix: prefix of the ids in this card, unique in the page.
        source: words of the document, S.
        words: words of the summary, T.
        copied: for each word of the summary, whether it was copied.
        attention: weights [T, S].
        agents: for each word of the document, the agent that reads it; colors the words of each agent.
    """
    colors = [None] * len(source) if agents is None else [AGENTS[agent % len(AGENTS)] for agent in agents]
    rules, spans = [], []
    for number, (word, is_copied, weights) in enumerate(zip(words, copied, attention)):
        top = [int(index) for index in np.argsort(-weights, kind="stable")[:_ATTENDED] if weights[index] > 0]
        rules += [(number, index, max(0.12, float(weights[index] / weights[top[0]]))) for index in top]
        hint = ", ".join(f"{source[index]} {weights[index]:.2f}" for index in top[:5])
        spans.append({"text": word, "copied": is_copied, "hint": hint, "color": colors[top[0]] if top else None})
    legend = {agent + 1: AGENTS[agent % len(AGENTS)] for agent in sorted(set(agents or ()))}
    return MACROS.copied_summary(prefix, rules, spans, list(zip(source, colors)), legend)


def picture(title: str, svg: str) -> str:
    """Return an SVG in a separate frame, which isolates its styles and enables its tooltips.

    A picture that is wider than the card shrinks by a quarter at most, so that it stays readable; the rest scrolls, as
    does a picture that is too high. The title says so.
    """
    width, height = (int(size) for size in re.search(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg).groups())
    height += 24
    if height > _PICTURE:
        height = _PICTURE
        title = f"{title} (scroll in it, or drag its lower right corner)"
    style = f"<style>body{{margin:0}} svg{{max-width:100%;min-width:{0.75 * width:.0f}px;height:auto}}</style>"
    page = f"<!doctype html>{style}<body>{svg}</body>"
    return MACROS.framed(title, height, base64.b64encode(page.encode()).decode())
