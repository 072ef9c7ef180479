"""Speed of extraction: oracle labels beside `rouge-score`, training, and selecting sentences.

    python benchmarks/extractive.py [--data DOCUMENTS.jsonl.gz] [--documents 400] [--encoder minilm]

`--data` names JSON Lines with `document` and `summary` (one sentence a line), tokenised as CNN/DailyMail is. Without it
documents of 30 sentences are drawn from a vocabulary of 20,000 made-up words. `--encoder none` measures an encoder from
scratch of the same size. One thread; processor time, but for two processes, whose wall time is beside that of one.
"""

import argparse
import gzip
import itertools
import json
import random
import time
from collections.abc import Callable

import torch
from rouge_score.rouge_scorer import RougeScorer

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.corpora.parallel import mapper
from datamodules.documents import Document
from datamodules.text.encoder_text import EncoderText
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.zero_shot import ZeroShot
from lightning_modules.metrics.oracle import greedy_oracle
from lightning_modules.metrics.rouge_words import vocabulary


def read(path: str, count: int) -> list[Document]:
    """The first documents of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, count)]
    return [
        Document(str(number), [row["document"].replace(" . ", " .\n").split("\n")], [row["summary"].split("\n")])
        for number, row in enumerate(rows)
    ]


def made_up(count: int, seed: int = 0) -> list[Document]:
    """Documents of 30 sentences of about 25 words, and summaries of four of about 14 that share half of theirs."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 8))) for _ in range(20_000)]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    documents = []
    for number in range(count):
        text = [draw.choices(words, cum_weights=weights, k=draw.randint(12, 38)) for _ in range(30)]
        summary = [draw.choice(text)[:7] + draw.choices(words, cum_weights=weights, k=7) for _ in range(4)]
        documents.append(Document(str(number), [[*map(" ".join, text)]], [[*map(" ".join, summary)]]))
    return documents


def label(document: Document) -> list[int]:
    """Oracle labels of a document."""
    return greedy_oracle(document.sentences, document.references, 3)


def slow_label(document: Document) -> list[int]:
    """The same with `rouge-score` on every set."""
    scorer, chosen, best = RougeScorer(["rouge1", "rouge2"], use_stemmer=True), [], 0.0
    while len(chosen) < 3:
        gains = {}
        for index in set(range(len(document.sentences))) - set(chosen):
            summary = "\n".join(document.sentences[i] for i in sorted([*chosen, index]))
            found = scorer.score("\n".join(document.references[0]), summary)
            gains[index] = found["rouge1"].fmeasure + found["rouge2"].fmeasure
        leader = max(gains, key=gains.get, default=None)
        if leader is None or gains[leader] <= best:
            break
        best = gains[leader]
        chosen.append(leader)
    return sorted(chosen)


def rate(count: int, action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """How many a second."""
    start = clock()
    action()
    return count / (clock() - start)


def on_processes(documents: list[Document], processes: int) -> float:
    """Documents labelled a second, by the wall clock."""
    vocabulary(True).clear()
    with mapper(processes) as each:
        list(each(label, documents[:64]))  # the pool is there
        return rate(len(documents), lambda: list(each(label, documents)), time.perf_counter)


def batches(documents: list[Document], text: EncoderText, encoder: str | None, size: int = 8) -> list:
    """Batches of documents of like length."""
    data = ExtractiveData(Texts([]), len(text), encoder)
    data.text = text
    rows = [data.encode(d) | {"id": d.id, "references": d.references} for d in documents]
    rows.sort(key=lambda row: row["length"])
    return [data.collate(rows[at : at + size]) for at in range(0, len(rows), size)]


def train(model: BertSum, found: list, precision: torch.dtype) -> float:
    """Tokens trained on a second."""
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=1e-5)
    model.train()

    def run() -> None:
        for batch in found:
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                loss = model.loss_terms(batch)["extraction"]
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return rate(sum(int(batch.lengths.sum()) for batch in found), run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="gzipped JSON Lines; made-up documents without it")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--encoder", default="minilm", help="minilm, a Hugging Face name or folder, or none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    documents = read(options.data, options.documents) if options.data else made_up(options.documents)
    few, some = documents[: max(1, len(documents) // 50)], documents[: max(8, len(documents) // 8)]
    sentences = sum(len(d.sentences) for d in documents) / len(documents)
    print(f"{len(documents):,} documents of {sentences:.0f} sentences in the mean\n")

    print("| oracle labels | documents/s |")
    print("|---|---|")
    equal = sum(slow_label(document) == label(document) for document in few)
    slow = rate(len(few), lambda: [*map(slow_label, few)])
    print(f"| `rouge-score`, {len(few)} documents ({equal} labelled alike) | {slow:.1f} |")
    vocabulary(True).clear()
    print(f"| ours, processor time | {rate(len(documents), lambda: [*map(label, documents)]):.0f} |")
    for processes in (1, 2):
        print(f"| ours, {processes} process(es), wall time | {on_processes(documents, processes):.0f} |", flush=True)

    encoder = None if options.encoder == "none" else options.encoder
    text = EncoderText.of_checkpoint(encoder) if encoder else EncoderText.build((d.text for d in documents), 8000)
    model = BertSum(30_522, encoder, hidden_size=384, heads=12, attention_dropout=0.0)
    model.use_text(text)
    found = batches(some, text, encoder)
    print("\n| BertSum, batches of 8 | tokens/s | documents/s |")
    print("|---|---|---|")
    for name, precision in (("training, float32", torch.float32), ("training, bfloat16", torch.bfloat16)):
        speed = train(model, found[len(found) // 2 :][:2], precision)
        print(f"| {name} | {speed:,.0f} | |", flush=True)
    tokens = sum(int(batch.lengths.sum()) for batch in found)
    speed = rate(tokens, lambda: [model.summarize(batch) for batch in found])
    print(f"| extraction, float32 | {speed:,.0f} | {speed / tokens * len(some):.1f} |", flush=True)

    print("\n| zero-shot extraction | documents/s |")
    print("|---|---|")
    for name in ("tfidf", *([encoder] if encoder else [])):
        made, chosen = ZeroShot(name), SelectionOptions("mmr", 3)
        speed = rate(len(some), lambda made=made, chosen=chosen: made.extract(some, chosen))
        print(f"| {name}, mmr | {speed:.1f} |", flush=True)


if __name__ == "__main__":
    main()
