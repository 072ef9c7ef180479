"""HTML of the playground: a card for each model with its summary and explanation, without scripts or remote files."""

import base64
import html
import re
from collections.abc import Mapping, Sequence

import numpy as np

from lightning_modules.extractive.summary import ExtractiveSummary

_PICTURE = 480  # pixels; higher pictures scroll
_ATTENDED = 12  # source words that are coloured when the pointer rests on a word of the summary
AGENTS = ("#1b6ca8", "#c0561a", "#2e7d32", "#8e24aa", "#ad1457", "#5d4037")  # a colour for each agent, repeated

STYLE = """
.precis-cards { display: flex; flex-wrap: wrap; gap: 1rem; align-items: stretch; }
.precis-card { flex: 1 1 22rem; min-width: 0; background: #fff; color: #1c2430; border: 1px solid #d8dde6;
  border-radius: 8px; padding: .9rem 1rem; font: 15px/1.55 system-ui, sans-serif; }
.precis-card h3 { font-size: 1.05rem; font-weight: 600; margin: 0; color: inherit; }
.precis-card h4 { font-size: .85rem; font-weight: 600; margin: .9rem 0 .2rem; color: #566072; }
.precis-card .small { font-size: .85rem; color: #566072; margin: 0; }
.precis-card .summary { font-size: 1.05rem; margin: .5rem 0; }
.precis-card .source { max-height: 20rem; overflow-y: auto; }
.precis-card mark { background: #ffe08a; color: inherit; border-radius: 3px; padding: 0 1px; }
.precis-card .word { cursor: default; border-radius: 3px; }
.precis-card .word:hover { outline: 2px solid #1c2430; }
.precis-card table { border-collapse: collapse; font-size: .85rem; margin: 0; }
.precis-card :is(td, th) { padding: .15rem .7rem .15rem 0 !important; border: 0 !important; }
.precis-card :is(td, th) { text-align: left; vertical-align: top; color: inherit; font-weight: normal; }
.precis-card th { color: #566072; }
.precis-card iframe { width: 100%; border: 1px solid #d8dde6; background: #fff; resize: vertical; }
.precis-error { background: #fdecea; color: #7f1d1d; border: 1px solid #f0b4ae; border-radius: 8px; }
.precis-error { padding: .8rem 1rem; }
"""


def cards_page(cards: Sequence[str]) -> str:
    """Return the cards of several models side by side."""
    return f'<style>{STYLE}</style><div class="precis-cards">{"".join(cards)}</div>'


def error_box(message: str) -> str:
    """Return an error as it is shown in the page."""
    return f'<style>{STYLE}</style><div class="precis-error" role="alert">{html.escape(message)}</div>'


def card(name: str, model: str, sections: Sequence[str]) -> str:
    """Return the card of a model: its name and class, then its sections."""
    head = f'<h3>{html.escape(name)}</h3><p class="small">{html.escape(model)}</p>'
    return f'<section class="precis-card">{head}{"".join(sections)}</section>'


def plain_summary(text: str) -> str:
    """Return a summary as text."""
    return f'<p class="summary">{html.escape(text) or "<em>empty</em>"}</p>'


def copied_summary(
    prefix: str,
    source: Sequence[str],
    words: Sequence[str],
    copied: Sequence[bool],
    attention: np.ndarray,
    agents: Sequence[int] | None = None,
) -> str:
    """Return a summary with marked copied words, above the document.

    While the mouse is over a word of the summary, the words of the document with the highest attention are coloured by
    weight, through rules of CSS without a script.

    Args:
        prefix: prefix of the ids in this card, unique in the page.
        source: words of the document, S.
        words: words of the summary, T.
        copied: for each word of the summary, whether it was copied.
        attention: weights [T, S].
        agents: for each word of the document, the agent that reads it; colours the words of each agent.
    """
    rules, shown = [], []
    for number, (word, is_copied, weights) in enumerate(zip(words, copied, attention)):
        top = [int(index) for index in np.argsort(-weights, kind="stable")[:_ATTENDED] if weights[index] > 0]
        largest = max((float(weights[index]) for index in top), default=1.0)
        for index in top:
            color = f"rgba(255, 140, 0, {max(0.12, float(weights[index]) / largest):.2f})"
            rules.append(f"#{prefix}:has(.w{number}:hover) .s{index} {{ background: {color}; }}")
        hint = ", ".join(f"{source[index]} {weights[index]:.2f}" for index in top[:5])
        escaped = html.escape(word)
        inner = f"<mark{_agent_style(agents, top)}>{escaped}</mark>" if is_copied else escaped
        shown.append(f'<span class="word w{number}" title="{html.escape(hint, quote=True)}">{inner}</span>')
    document = " ".join(
        f'<span class="s{index}"{_agent_style(agents, [index])}>{html.escape(word)}</span>'
        for index, word in enumerate(source)
    )
    note = "copied words are marked; rest the pointer on a word to see what it attended to"
    legend = _agent_legend(agents) if agents is not None else ""
    text = " ".join(shown) or "<em>empty</em>"
    return (
        f'<div id="{prefix}"><style>{"".join(rules)}</style><p class="summary">{text}</p>'
        f'<p class="small">{note}</p>{legend}<h4>what the model reads</h4><div class="source">{document}</div></div>'
    )


def _agent_style(agents: Sequence[int] | None, indices: Sequence[int]) -> str:
    """Return the style of a word in the colour of the agent that reads the first of some source words."""
    if agents is None or not indices:
        return ""
    return f' style="border-bottom: 2px solid {AGENTS[agents[indices[0]] % len(AGENTS)]}"'


def _agent_legend(agents: Sequence[int]) -> str:
    names = (
        f'<span style="border-bottom: 2px solid {AGENTS[agent % len(AGENTS)]}">agent {agent + 1}</span>'
        for agent in sorted(set(agents))
    )
    note = "a copied word has the colour of the agent that it comes from"
    return f'<p class="small">underlined: {", ".join(names)}; {note}</p>'


def selected_sentences(summary: ExtractiveSummary) -> str:
    """Return the document's sentences, the selected ones marked, each with its score."""
    rows = []
    for number, (sentence, score) in enumerate(zip(summary.document, summary.sentence_scores)):
        text = html.escape(sentence)
        text = f"<mark>{text}</mark>" if number in summary.positions else text
        rows.append(f"<tr><td>{number + 1}</td><td>{score:.3f}</td><td>{text}</td></tr>")
    head = "<tr><th></th><th>score</th><th>sentence</th></tr>"
    return (
        f'{plain_summary(summary.text)}<h4>sentences and scores; the selected ones are marked</h4>'
        f'<div class="source"><table>{head}{"".join(rows)}</table></div>'
    )


def picture(title: str, svg: str) -> str:
    """Return an SVG in a separate frame, which isolates its styles and enables its tooltips.

    A picture that is wider than the card shrinks by a quarter at most, so that it stays readable; the rest scrolls, as
    does a picture that is too high. The title says so.
    """
    width, height = (int(size) for size in re.search(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg).groups())
    height += 24
    if height > _PICTURE:
        height, title = _PICTURE, f"{title} (scroll in it, or drag its lower right corner)"
    style = f"<style>body{{margin:0}} svg{{max-width:100%;min-width:{0.75 * width:.0f}px;height:auto}}</style>"
    page = f"<!doctype html>{style}<body>{svg}</body>"
    encoded = base64.b64encode(page.encode()).decode()
    frame = f'<iframe sandbox title="{html.escape(title, quote=True)}" height="{height}" '
    return f'<h4>{html.escape(title)}</h4>{frame}src="data:text/html;charset=utf-8;base64,{encoded}"></iframe>'


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a title."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f'<h4>{html.escape(title)}</h4><div class="source"><table><tr>{head}</tr>{body}</table></div>'


def scores_table(scores: Mapping[str, float]) -> str:
    """Return the scores of a summary against the reference."""
    return table("ROUGE F1 x 100 against the reference", list(scores), [[f"{value:.1f}" for value in scores.values()]])
