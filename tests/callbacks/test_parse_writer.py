"""A prediction run into a cache: whole, interrupted and failed."""

import os
import signal

from made_up_parses import made_up_document, made_up_parse
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import SingleDeviceStrategy

from callbacks.parse_writer import ParseWriter
from datamodules.discourse.cache import ParseCache
from datamodules.parsing import ParsingData

DOCUMENTS = [made_up_document(number) for number in range(9)]


class MadeUpParser(LightningModule):
    """Interrupts or fails in one of its batches, if it is to."""

    fingerprint, rows, band = "made up", "side", 4

    def __init__(self, interrupt: int = -1, fail: int = -1) -> None:
        super().__init__()
        self.interrupt, self.fail = interrupt, fail

    def predict_step(self, batch, batch_idx):
        if batch_idx == self.interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        if batch_idx == self.fail:
            raise ValueError("no memory left")
        return [made_up_parse(request, self.band) for request in batch]


def run(folder, parser: LightningModule, **options) -> ParseWriter:
    cache = ParseCache(folder)
    writer = ParseWriter(cache, **options)
    trainer = Trainer(
        accelerator="cpu", devices=1, callbacks=[writer], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    data = ParsingData(DOCUMENTS, cache, parser, batch_size=2)
    before = signal.getsignal(signal.SIGINT)
    try:
        trainer.predict(parser, datamodule=data, return_predictions=False)
    except (SystemExit, ValueError) as error:
        writer.error = error
    finally:
        signal.signal(signal.SIGINT, before)
    writer.left = len(data.missing())
    return writer


def test_a_run_writes_all_and_says_how_fast(tmp_path, capfd):
    writer = run(tmp_path, MadeUpParser(), every=0)
    assert writer.left == 0 and writer.documents == writer.total_documents == 9 and writer.edus == 9 * 6
    assert ParseCache(tmp_path).verify() == {}
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("parsing: ")]
    assert len(lines) == 5 and "9 of 9 documents" in lines[-1] and lines[-1].endswith("0:00:00 left")
    assert writer.tokens == writer.total_tokens == sum(len(document.text.split()) for document in DOCUMENTS)
    assert "documents/s" in lines[0] and "EDUs/s" in lines[0]
    assert run(tmp_path, MadeUpParser(), progress=False).documents == 0


def test_the_time_left_is_estimated_from_tokens(tmp_path):
    """One document of 900 tokens took 90 s; the 99 others together have as many tokens."""
    writer = ParseWriter(ParseCache(tmp_path))
    writer.documents, writer.total_documents = 1, 100
    writer.tokens, writer.total_tokens, writer.edus, writer.seconds = 900, 1800, 90, 90.0
    line = writer.progress_line()
    assert line == "1 of 100 documents, 900 of 1,800 tokens, 0.0 documents/s, 1 EDUs/s, 0:01:30 left"


def test_an_interrupted_run_keeps_what_it_has_and_continues(tmp_path):
    writer = run(tmp_path, MadeUpParser(interrupt=2))
    assert writer.interrupted and isinstance(writer.error, SystemExit)
    assert writer.documents == 4 and writer.left == 5
    again = run(tmp_path, MadeUpParser())
    assert again.documents == 5 and again.left == 0 and not again.interrupted


def test_a_run_that_fails_keeps_what_it_has(tmp_path):
    writer = run(tmp_path, MadeUpParser(fail=3))
    assert str(writer.error) == "no memory left" and not writer.interrupted
    assert writer.documents == 6 and writer.left == 3


def test_shards_are_as_large_as_asked_for(tmp_path):
    run(tmp_path, MadeUpParser(), documents=4)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3


def test_ranks_wait_for_each_other_once_they_have_written(tmp_path, monkeypatch):
    waited = []

    def barrier(strategy, name=None):
        waited.append((name, len(ParseCache(tmp_path))))

    monkeypatch.setattr(SingleDeviceStrategy, "barrier", barrier)
    run(tmp_path, MadeUpParser())
    assert ("parses", 9) in waited
