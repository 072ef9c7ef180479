"""Speed of extraction: oracle labels compared with `rouge-score`, training, and sentence selection.

    python -m benchmarks.extractive [--data DOCUMENTS.jsonl.gz] [--documents 400] [--encoder minilm]

`--data` names JSON Lines with `document` and `summary` (one sentence per line), tokenised like CNN/DailyMail. Without
it, documents of 30 sentences are drawn from a vocabulary of 20,000 simulated words. `--encoder none` measures an
encoder from scratch of the same size. One thread; processor time, except for the comparison of one and two processes.
"""

import time
from collections.abc import Callable, Iterator

import torch
from rouge_score.rouge_scorer import RougeScorer

from benchmarks.measuring import MadeUpWords, options, print_table, read_rows, training_step
from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.corpora.parallel import mapper
from datamodules.documents import Document
from datamodules.text.encoder_tokenizer import EncoderTokenizer
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.zero_shot import ZeroShot
from lightning_modules.metrics.oracle import greedy_oracle
from lightning_modules.metrics.rouge_words import vocabulary


def made_up(count: int) -> list[Document]:
    """Return documents of 30 sentences, with 4 summary sentences each, of 7 copied and 7 random words."""
    words = MadeUpWords()
    documents = []
    for number in range(count):
        text = [words.draw(12, 38) for _ in range(30)]
        summary = [words.random.choice(text)[:7] + words.draw(7, 7) for _ in range(4)]
        documents.append(Document(str(number), [[*map(" ".join, text)]], [[*map(" ".join, summary)]]))
    return documents


def label(document: Document) -> list[int]:
    """Return the oracle labels of a document."""
    return greedy_oracle(document.sentences, document.references, 3)


def slow_label(document: Document) -> list[int]:
    """Return the oracle labels, with a call of `rouge-score` for every candidate set."""
    scorer, chosen, best = RougeScorer(["rouge1", "rouge2"], use_stemmer=True), [], 0.0
    while len(chosen) < 3:
        gains = {}
        for index in set(range(len(document.sentences))) - set(chosen):
            summary = "\n".join(document.sentences[i] for i in sorted([*chosen, index]))
            scores = scorer.score("\n".join(document.references[0]), summary)
            gains[index] = scores["rouge1"].fmeasure + scores["rouge2"].fmeasure
        leader = max(gains, key=gains.get, default=None)
        if leader is None or gains[leader] <= best:
            break
        best = gains[leader]
        chosen.append(leader)
    return sorted(chosen)


def rate(count: int, action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Return the number of items per second."""
    start = clock()
    action()
    return count / (clock() - start)


def on_processes(documents: list[Document], processes: int) -> float:
    """Return the number of documents that are labelled per second of wall time."""
    vocabulary(True).clear()
    with mapper(processes) as each:
        list(each(label, documents[:64]))  # start the pool
        return rate(len(documents), lambda: list(each(label, documents)), time.perf_counter)


def batches(documents: list[Document], tokenizer: EncoderTokenizer, encoder: str | None, size: int = 8) -> list:
    """Return batches of documents of similar length."""
    data = ExtractiveData(Texts([]), len(tokenizer), encoder)
    data.tokenizer = tokenizer
    rows = [data.encode(d) | {"id": d.id, "references": d.references} for d in documents]
    rows.sort(key=lambda row: row["length"])
    return [data.collate(rows[at : at + size]) for at in range(0, len(rows), size)]


def train(model: BertSum, encoded: list, precision: torch.dtype) -> float:
    """Return the number of training tokens per second."""
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=1e-5)

    def loss(batch) -> torch.Tensor:
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            return model.loss_terms(batch)["extraction"]

    steps = [training_step(model, lambda batch=batch: loss(batch), optimizer) for batch in encoded]
    return rate(sum(int(batch.lengths.sum()) for batch in encoded), lambda: [step() for step in steps])


def labelling(documents: list[Document]) -> Iterator[list[str]]:
    """Yield the rows of the table of oracle labels."""
    sample = documents[: max(1, len(documents) // 50)]
    equal = sum(slow_label(document) == label(document) for document in sample)
    slow = rate(len(sample), lambda: [*map(slow_label, sample)])
    yield [f"`rouge-score`, {len(sample)} documents ({equal} with the same labels)", f"{slow:.1f}"]
    vocabulary(True).clear()
    yield ["ours, processor time", f"{rate(len(documents), lambda: [*map(label, documents)]):.0f}"]
    for processes in (1, 2):
        yield [f"ours, {processes} process(es), wall time", f"{on_processes(documents, processes):.0f}"]


def extraction(documents: list[Document], tokenizer: EncoderTokenizer, encoder: str | None) -> Iterator[list[str]]:
    """Yield the rows of the table of BertSum."""
    model = BertSum(30_522, encoder, hidden_size=384, heads=12, attention_dropout=0.0)
    model.set_tokenizer(tokenizer)
    encoded = batches(documents, tokenizer, encoder)
    for name, precision in (("training, float32", torch.float32), ("training, bfloat16", torch.bfloat16)):
        yield [name, f"{train(model, encoded[len(encoded) // 2 :][:2], precision):,.0f}", ""]
    tokens = sum(int(batch.lengths.sum()) for batch in encoded)
    speed = rate(tokens, lambda: [model.summarize(batch) for batch in encoded])
    yield ["extraction, float32", f"{speed:,.0f}", f"{speed / tokens * len(documents):.1f}"]


def zero_shot(documents: list[Document], encoder: str | None) -> Iterator[list[str]]:
    """Yield the rows of the table of models without training."""
    for name in ("tfidf", *([encoder] if encoder else [])):
        model = ZeroShot(name)
        speed = rate(len(documents), lambda model=model: model.extract(documents, SelectionOptions("mmr", 3)))
        yield [f"{name}, mmr", f"{speed:.1f}"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", help="gzipped JSON Lines; simulated documents by default")
    parser.add_argument("--documents", type=int, default=400)
    parser.add_argument("--encoder", default="minilm", help="minilm, a Hugging Face name or folder, or none")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.data:
        rows = enumerate(read_rows(arguments.data, arguments.documents))
        documents = [Document(str(number), [document], [summary]) for number, (document, summary) in rows]
    else:
        documents = made_up(arguments.documents)
    sentences = sum(len(d.sentences) for d in documents) / len(documents)
    print(f"{len(documents):,} documents of {sentences:.0f} sentences on average\n")
    print_table(["oracle labels", "documents/s"], labelling(documents))
    encoder = None if arguments.encoder == "none" else arguments.encoder
    if encoder:
        text = EncoderTokenizer.of_checkpoint(encoder)
    else:
        text = EncoderTokenizer.build((document.text for document in documents), 8000)
    sample = documents[: max(8, len(documents) // 8)]
    print_table(["BertSum, batches of 8", "tokens/s", "documents/s"], extraction(sample, text, encoder))
    print_table(["zero-shot extraction", "documents/s"], zero_shot(sample, encoder))


if __name__ == "__main__":
    main()
