from made_up_parses import made_up_document
from pytorch_lightning.strategies import SingleDeviceStrategy
from quiet_trainer import quiet_trainer

from datamodules.corpora import parallel
from datamodules.discourse.cache import ParseCache
from datamodules.parsing import ParsingData
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.discourse.parse import ParseWriter

DOCUMENTS = [made_up_document(number) for number in range(9)]


def run(folder, **limits) -> ParseCache:
    cache, parser = ParseCache(folder), RightBranchingParser()
    data = ParsingData(DOCUMENTS, cache, parser, batch_size=2)
    trainer = quiet_trainer(ParseWriter(cache, **limits), devices=1)
    trainer.predict(parser, datamodule=data, return_predictions=False)
    assert data.missing() == []
    return ParseCache(folder)


def test_a_run_writes_all_and_counts_tokens(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(parallel, "LINE_INTERVAL", 0.0)
    cache = run(tmp_path)
    assert len(cache) == 9 and cache.missing(cache) == []
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("parsing tokens: ")]
    tokens = sum(len(document.text.split()) for document in DOCUMENTS)
    assert len(lines) == 5 and lines[-1] == f"parsing tokens: {tokens} of {tokens}, 0:00:00 left"
    assert all(line.endswith(":00:01 left") for line in lines[1:-1])


def test_ranks_wait_for_each_other_once_they_have_written_shards_as_large_as_asked_for(tmp_path, monkeypatch):
    waited, count = [], lambda strategy, name=None: waited.append((name, len(ParseCache(tmp_path))))
    monkeypatch.setattr(SingleDeviceStrategy, "barrier", count)
    run(tmp_path, documents=4)
    assert ("parses", 9) in waited and len(list(tmp_path.glob("*.safetensors"))) == 3
