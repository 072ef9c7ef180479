import json
from types import SimpleNamespace
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from cases import BY_NAME
from pytorch_lightning.callbacks import EMAWeightAveraging
from pytorch_lightning.loggers import WandbLogger
from quiet_trainer import quiet_trainer

from callbacks import LengthCurriculum, PredictionWriter, Previews, SelfCritical
from callbacks.previews import marked
from datamodules.documents import UserError
from lightning_modules.metrics.rouge_metric import Rouge
from lightning_modules.summarizer import Summary


@pytest.mark.parametrize("text, expected", [
    ("the OLD MILL burns", "the [old mill] burns"), ("OLD mill BURNS", "[old] mill [burns]"),
    ("ALL OF IT", "[all of it]"), ("none of it", "none of it"), ("", ""),
])  # fmt: skip
def test_runs_of_copied_words_stand_between_marks(text, expected):
    words = text.split()
    copied = [word.isupper() for word in words]
    summary = Summary("a", [text.lower()], [], text.lower().split(), copied)
    assert marked(summary) == expected
    assert marked(Summary("a", ["雨大。"], [], ["雨", "大", "。"], [True, True, False])) == "[雨大]。"
    assert marked(summary, "<", ">") == expected.replace("[", "<").replace("]", ">")


def test_the_table_has_the_first_documents_and_heat_maps_are_in_the_run_folder(corpus_files, tmp_path):
    case, logger = BY_NAME["pointer-coverage"], Mock(spec=WandbLogger)
    model, data = case.build_model(), case.build_data(corpus_files)
    curriculum = LengthCurriculum(source=3, target=2, steps=100)  # truncates documents in training, and not here
    previews = Previews(tmp_path, documents=3, heat_maps=2)
    model.attention_map = Mock(wraps=model.attention_map)
    quiet_trainer(EMAWeightAveraging(decay=0.99), curriculum, previews, max_epochs=2, logger=logger).fit(model, data)
    tables, columns = logger.log_table.call_args_list, ["id", "reference", "summary", "rouge1"]
    expected = [call("previews", columns=columns, data=table.kwargs["data"]) for table in tables]
    assert tables == expected and len(tables) == 2, "at each validation, not at the sanity check"
    ids, references, written, scores = zip(*tables[-1].kwargs["data"])
    documents, features = data.documents("val"), data.features("val")
    assert list(ids) == ["doc-26", "doc-27", "doc-28"] == documents["id"][:3]
    assert list(references) == [" ".join(those[0]) for those in documents["references"][:3]]
    batch = data.collate([features[i] for i in range(3)])
    assert model.attention_map.call_args.args[0].lengths.tolist() == batch.lengths.tolist()
    summaries = model.eval().summarize(batch)
    assert list(written) == [marked(summary) for summary in summaries]
    assert list(scores) == [s.scores["rouge1"] for s in model.scored(summaries)]
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png"))
    assert files == ["step000007/0.png", "step000007/1.png", "step000014/0.png", "step000014/1.png"]
    assert logger.log_image.call_args_list == [call(f"attention/{name[-5]}", [str(tmp_path / name)]) for name in files]
    assert (tmp_path / "step000014" / "0.png").read_bytes().startswith(b"\x89PNG")
    _, _, attention, coverage = model.attention_map(data.collate([features[0]]), 0)
    np.testing.assert_allclose(attention.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(coverage, attention.sum(0), rtol=1e-5)


def test_samples_with_their_rewards_are_shown_in_training_by_rewards(corpus_files, tmp_path):
    case, logger = BY_NAME["pointer"], Mock(spec=WandbLogger)
    reward = SelfCritical(samples=3, advantage="group")
    previews = Previews(tmp_path, documents=2, heat_maps=0)
    trainer = quiet_trainer(reward, previews, max_steps=2, val_check_interval=2, logger=logger)
    trainer.fit(case.build_model(), case.build_data(corpus_files))
    assert [table.args for table in logger.log_table.call_args_list] == [("previews",), ("samples",)]
    rows = [list(row.values()) for row in reward.last_samples[:6]]
    assert logger.log_table.call_args == call("samples", columns=["id", "sample", "reward"], data=rows)
    lines = (tmp_path / "step000002" / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    assert [list(json.loads(line).values()) for line in lines] == rows


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
    write(tmp_path / "predictions.jsonl", shares)
    number = sum(len(batch) for share in shares for batch in share)
    assert ids(tmp_path / "predictions.jsonl") == list(range(number))
    assert not list(tmp_path.glob(".*")), "no rank's share is left"


def test_lead_1_is_that_of_the_summarized_documents(corpus_files, tmp_path):
    model, data = BY_NAME["pointer"].build(corpus_files)
    writer = PredictionWriter(tmp_path / "predictions.jsonl")
    quiet_trainer(writer, limit_test_batches=1).test(model, data, verbose=False)
    documents = list(data.scored_documents("test"))[: data.eval_batch_size]
    rouge = Rouge(("rouge1",))
    rouge.update([document.sentences[:1] for document in documents], [document.references for document in documents])
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["documents"] == len(documents) < len(data.documents("test"))
    assert results["lead1"]["rouge1"] == pytest.approx(float(rouge.compute()["rouge1"]))


def test_later_predictions_replace_earlier_ones_as_a_whole(tmp_path):
    path = tmp_path / "predictions.jsonl"
    write(path, [[[0, 1, 2]]])
    writer, told = PredictionWriter(path), trainer(0, 1)
    writer.on_test_start(told, None)
    writer.on_test_batch_end(told, None, [summary(9)], None, 0)
    assert ids(path) == [0, 1, 2], "not before all is there"
    with pytest.raises(UserError, match="another process is writing it"):
        PredictionWriter(path).on_test_start(told, None)  # as by the same command in another terminal
    writer.on_exception(told, None, KeyboardInterrupt())
    assert ids(path) == [0, 1, 2] and not list(tmp_path.glob(".*")), "an interrupted test leaves what was there"
    write(path, [[[5]]])
    assert ids(path) == [5]
    write(tmp_path / "training" / "predictions.jsonl", [[[1]]], "validation", fn="fit")
    assert not (tmp_path / "training").exists(), "nothing is written in training"
