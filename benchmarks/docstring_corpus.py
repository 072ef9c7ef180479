"""Statistics of the built-in corpus: its size, the score of lead-1, and the leakage of a plain split by hash.

    python -m benchmarks.docstring_corpus

Lead-1 is the first sentence of the document, scored by `rouge-score` with its stemmer. A held-out document has leaked
if a document in train has a Jaccard similarity of at least 0.7 (or 0.5) with it, exactly computed on word 5-grams.
"""

import hashlib
import time
from collections import Counter, defaultdict

from rouge_score.rouge_scorer import RougeScorer

from datamodules.corpora.corpus import make_document
from datamodules.corpora.docstrings import Docstrings
from datamodules.corpora.near_copies import shingles
from datamodules.documents import Document

THRESHOLDS = (0.5, 0.7)


def lead_1(documents: list[Document]) -> dict[str, float]:
    """Return the mean F1 x 100 of the first sentence against the reference."""
    metrics = ["rouge1", "rouge2", "rougeLsum"]
    scorer = RougeScorer(metrics, use_stemmer=True)
    scores = [scorer.score("\n".join(document.references[0]), document.sentences[0]) for document in documents]
    return {metric: 100 * sum(score[metric].fmeasure for score in scores) / len(scores) for metric in metrics}


def leaked(train: list[str], held_out: list[str]) -> dict[float, float]:
    """Return the percentage of held-out texts that have a near-duplicate in train, for each threshold."""
    grams = [shingles(text) for text in train]
    holders = defaultdict(list)
    for index, text_grams in enumerate(grams):
        for gram in text_grams:
            holders[gram].append(index)
    counts = dict.fromkeys(THRESHOLDS, 0)
    for text_grams in map(shingles, held_out):
        shared = Counter(index for gram in text_grams for index in holders.get(gram, ()))
        best = max((n / (len(text_grams) + len(grams[index]) - n) for index, n in shared.items()), default=0.0)
        for threshold in THRESHOLDS:
            counts[threshold] += best >= threshold
    return {threshold: 100 * count / len(held_out) for threshold, count in counts.items()}


def main() -> None:
    start = time.perf_counter()
    corpus = Docstrings()
    splits = {split: list(corpus.records(split)) for split in corpus.splits()}
    seconds = time.perf_counter() - start
    print(f"Harvested and clustered in {seconds:.0f} s. {corpus.fingerprint('train')}\n")
    print("| split | documents | lead-1 ROUGE-1/2/Lsum | near-copy in train, J >= 0.5 | J >= 0.7 |")
    print("|---|---|---|---|---|")
    texts = {split: ["\n".join(record.parts) for record in records] for split, records in splits.items()}
    print(f"| train | {len(texts['train']):,} | | | |")
    for split in ("val", "test"):
        scores = " / ".join(f"{x:.1f}" for x in lead_1([make_document(record) for record in splits[split]]).values())
        leak = leaked(texts["train"], texts[split])
        print(f"| {split} | {len(texts[split]):,} | {scores} | {leak[0.5]:.1f} % | {leak[0.7]:.1f} % |")
    everything = [text for part in texts.values() for text in part]
    by_hash = sorted(everything, key=lambda text: hashlib.sha256(text.encode()).digest())
    size = len(texts["test"])
    leak = leaked(by_hash[size:], by_hash[:size])
    print(f"| as large as test, by hash | {size:,} | | {leak[0.5]:.1f} % | {leak[0.7]:.1f} % |")


if __name__ == "__main__":
    main()
