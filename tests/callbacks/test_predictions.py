import json
from types import SimpleNamespace

import pytest
import torch

from callbacks import PredictionWriter
from lightning_modules.metrics.rouge_metric import Rouge
from lightning_modules.summarizer import Summary

SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c"


def summary(number: int) -> Summary:
    texts = ["Café — one.", f"{number}{SEPARATORS}two"]
    return Summary(f"doc-{number}", texts, [[SEPARATORS]], scores={"rouge1": float(number)})


def trainer(rank: int, world: int, fn: str = "test") -> SimpleNamespace:
    return SimpleNamespace(
        state=SimpleNamespace(fn=fn), strategy=SimpleNamespace(barrier=lambda name: None),
        global_rank=rank, world_size=world, is_global_zero=rank == 0,
        lightning_module=SimpleNamespace(rouge={"test": Rouge(("rouge1",))}),
        callback_metrics={"test/rouge1": torch.tensor(12.5)},
    )  # fmt: skip


def write(path, shares: list[list[list[int]]], stage: str = "test", fn: str = "test") -> None:
    """Ranks write their batches; rank 0 closes last, as it waits for the others."""
    writers = [(PredictionWriter(path), trainer(rank, len(shares), fn)) for rank in range(len(shares))]
    for (writer, told), batches in zip(writers, shares):
        getattr(writer, f"on_{stage}_start")(told, None)
        for index, batch in enumerate(batches):
            getattr(writer, f"on_{stage}_batch_end")(told, None, [summary(i) for i in batch], None, index)
    for writer, told in reversed(writers):
        getattr(writer, f"on_{stage}_end")(told, None)


def ids(path) -> list[int]:
    lines = path.read_text(encoding="utf-8").splitlines()  # separators within texts end no record
    return [int(json.loads(line)["id"].removeprefix("doc-")) for line in lines]


@pytest.mark.parametrize("stage", ["validation", "test", "predict"])
def test_a_line_a_document(stage, tmp_path):
    path = tmp_path / "run" / "predictions.jsonl"
    write(path, [[[0, 1], [2]]], stage)
    text = path.read_text(encoding="utf-8")
    for lines in (text.splitlines(), text.split("\n")[:-1]):  # for readers that end a line at other separators, too
        assert [json.loads(line) for line in lines] == [summary(i).record() for i in range(3)]
    assert "Café — one." in text, "readable without decoding"
    names = ["predictions.jsonl", "predictions.signatures.json", "results.json"]
    assert sorted(p.name for p in path.parent.iterdir()) == names
    results = json.loads((path.parent / "results.json").read_text(encoding="utf-8"))
    assert results == {"documents": 3, "predictions": "predictions.jsonl", "scores": {"test/rouge1": 12.5}}


@pytest.mark.parametrize("shares", [[[[0]], []], [[[0, 3], [6]], [[1, 4]], [[2, 5]]]], ids=["one-has-none", "three"])
def test_shares_of_ranks_come_together_in_the_documents_order(shares, tmp_path):
    path = tmp_path / "predictions.jsonl"
    write(path, shares)
    number = sum(len(batch) for share in shares for batch in share)
    assert ids(path) == list(range(number))
    assert not list(tmp_path.glob(".*")), "no rank's share is left"


def test_later_predictions_replace_earlier_ones_as_a_whole(tmp_path):
    path = tmp_path / "predictions.jsonl"
    write(path, [[[0, 1, 2]]])
    writer, told = PredictionWriter(path), trainer(0, 1)
    writer.on_test_start(told, None)
    writer.on_test_batch_end(told, None, [summary(9)], None, 0)
    assert ids(path) == [0, 1, 2], "not before all is there"
    writer.on_exception(told, None, KeyboardInterrupt())
    assert ids(path) == [0, 1, 2] and not list(tmp_path.glob(".*")), "an interrupted test leaves what was there"
    write(path, [[[5]]])
    assert ids(path) == [5]


def test_nothing_is_written_in_training(tmp_path):
    write(tmp_path / "predictions.jsonl", [[[1]]], "validation", fn="fit")
    assert not list(tmp_path.iterdir())
