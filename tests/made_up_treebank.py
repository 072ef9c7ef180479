"""A treebank whose trees follow from its text, so that a parser can memorize and partly generalize it."""

import json
import random
from pathlib import Path

from conftest import write_lines
from tiny_models import write_bert

CLAUSES = {
    "because it rained": "causal-cause",
    "although it rained": "adversative-concession",
    "if it rained": "contingency-condition",
}


def made_up_row(number: int, sentences: int) -> dict:
    """A document of GUM's JSON: sentences of a clause and a subordinate one, joined by a list."""
    rng, text, edus, spans = random.Random(number), "", [], []
    names = []
    for i in range(sentences):
        clause = rng.choice(list(CLAUSES))
        names.append(CLAUSES[clause])
        start = len(text)
        for piece in (f"the otter number {rng.randrange(9)} swam ", f"{clause} ."):
            edus.append([len(text), len((text + piece).rstrip())])
            text += piece
        spans.append([start, len(text)])
        text += "\n" if i % 2 else " "
    units = [["NS", name, 2 * i, 2 * i + 1] for i, name in enumerate(names)]
    tree = units.pop()
    while units:
        tree = ["NN", "joint-list", units.pop(), tree]
    paragraphs = [[spans[i][0], spans[min(i + 1, sentences - 1)][1]] for i in range(0, sentences, 2)]
    licence = "CC BY 4.0 (made up)" if number % 3 else "CC BY-NC-SA 4.0"
    return {
        "id": f"made-up-{number}", "genre": "fable", "license": licence, "text": text, "edus": edus,
        "sentences": spans, "paragraphs": paragraphs, "tree": tree, "tree_nary": tree,
    }  # fmt: skip


def made_up_treebank(path: Path, documents: int = 6, sentences: int = 3) -> Path:
    return write_lines(path, [json.dumps(made_up_row(n, sentences + n % 3)) for n in range(documents)])


def write_encoder(folder: Path, texts: list[str]) -> str:
    words = sorted({word for text in texts for word in text.split()})
    return write_bert(folder, words, num_hidden_layers=2, max_position_embeddings=32)
