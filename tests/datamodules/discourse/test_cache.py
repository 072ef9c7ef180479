"""The cache of parses: several readers and writers, damaged shards, and documents that are parsed into it once."""

import errno
import json
import os
import pickle
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from made_up_parses import MadeUpParser, made_up_document, made_up_parse, same

from datamodules.atomic_write import LOCK
from datamodules.corpora import Files
from datamodules.discourse import cache as cache_module
from datamodules.discourse import shards
from datamodules.discourse.cache import MissingParse, ParseCache, ShardWriter, parse_key
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document, UserError
from datamodules.parsing import CorpusDocuments, ParsingData, add_answers, key_of, parse_missing

REQUESTS = [ParseRequest.of(made_up_document(number)) for number in range(12)]
PARSES = {parse_key(request, "made up", "side", 8): made_up_parse(request) for request in REQUESTS}
KEYS = list(PARSES)


def write(folder: Path, keys: list[str], rank: int = 0, **limits: float) -> ParseCache:
    with ShardWriter(ParseCache(folder), rank, **limits) as writer:
        for key in keys:
            writer.add(key, PARSES[key])
    return ParseCache(folder)


def only_shard(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def test_written_parses_are_read_by_all_unless_a_shard_breaks_meanwhile(tmp_path):
    cache = write(tmp_path / "cache", KEYS[:7], documents=3)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 3
    assert cache.missing(KEYS) == KEYS[7:] and len(cache) == 7 and KEYS[0] in cache
    assert all(same(cache.get(key), PARSES[key]) for key in KEYS[:7])
    assert cache.nbytes == sum(p.stat().st_size for p in cache.folder.glob("*.safetensors"))
    assert cache.get(KEYS[0], id="other").id == "other"
    with pytest.raises(MissingParse, match="no parse of document 'doc-9'; run `precis parse`"):
        cache.get(KEYS[9], id="doc-9")
    cache = write(tmp_path / "breaks", KEYS[:2])
    assert same(cache.get(KEYS[0]), PARSES[KEYS[0]])
    path = only_shard(tmp_path / "breaks")
    os.truncate(path, path.stat().st_size - 8)
    with pytest.warns(UserWarning, match="not used"), pytest.raises(MissingParse):
        cache.get(KEYS[1])
    # readers see the union of what writers add
    reader = ParseCache(tmp_path)
    writers = [ShardWriter(ParseCache(tmp_path), rank) for rank in range(3)]
    for rank, writer in enumerate(writers):
        for key in [*KEYS[rank::3], KEYS[0]]:  # one document by all of them
            writer.add(key, PARSES[key])
    assert reader.missing(KEYS) == KEYS
    for writer in writers:
        writer.flush()
    assert reader.missing(KEYS) == [] and all(same(reader.get(key), PARSES[key]) for key in KEYS)
    assert same(pickle.loads(pickle.dumps(reader)).get(KEYS[5]), PARSES[KEYS[5]])


def test_the_key_covers_all_that_a_parse_depends_on():
    request, changes = REQUESTS[1], {"text": "other!", "sentences": (), "paragraphs": (), "edus": ((0, 3),)}
    changed = [request, *(replace(request, **{name: value}) for name, value in changes.items())]
    keys = {parse_key(other, "weights", "side", 8) for other in changed}
    parsers = ("other", "side", 8), ("weights", "nucleus", 8), ("weights", "side", 9)
    keys |= {parse_key(request, *parser) for parser in parsers}
    assert len(keys) == 8 and parse_key(replace(request, id="other id"), "weights", "side", 8) in keys


def test_a_damaged_shard_is_named_left_out_and_parsed_again(tmp_path):
    write(tmp_path, KEYS[:3])
    path = only_shard(tmp_path)
    write(tmp_path, KEYS[3:5], rank=1)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.warns(UserWarning, match=f"{path.name}: not used: .*parsed again"):
        cache = ParseCache(tmp_path)
        assert cache.missing(KEYS[:5]) == KEYS[:3]
    with pytest.raises(MissingParse):
        cache.get(KEYS[1])
    again = write(tmp_path, KEYS[:3])  # nothing to warn of any more
    assert again.missing(KEYS[:5]) == []
    assert path.with_name(f"{path.name}.broken").exists()


def test_every_byte_and_the_length_are_covered(tmp_path):
    write(tmp_path, KEYS[:1])
    path = only_shard(tmp_path)
    whole = path.read_bytes()
    places = [*range(0, len(whole), 7), len(whole) - 10]
    flipped = [whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :] for place in places]
    for content in (*flipped, whole[:-5], whole + b"more", b""):
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="not used"):
            assert ParseCache(tmp_path).missing(KEYS[:1]) == KEYS[:1]
    path.write_bytes(whole)
    cache = ParseCache(tmp_path)
    assert cache.missing(KEYS[:1]) == []
    # a foreign file is named and left where it is
    foreign = tmp_path / "model.safetensors"
    foreign.write_bytes(whole)
    with pytest.warns(UserWarning, match="model.safetensors: not used: a foreign file"):
        cache = ParseCache(tmp_path)
    ShardWriter(cache)
    assert foreign.exists() and cache.missing(KEYS[:1]) == []


def test_folders_of_another_kind_and_those_that_cannot_be_written_to(tmp_path):
    write(tmp_path, KEYS[:1])
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 0}))
    with pytest.raises(UserError, match="format version 0, and this is version 2; choose another folder"):
        ParseCache(tmp_path)
    for other in ('{"documents": 3}', "[]", "no json"):
        manifest.write_text(other)
        with pytest.raises(UserError, match="not that of a folder of discourse parses"):
            ParseCache(tmp_path)
    with pytest.raises(UserError, match="a file; name a folder"):
        ParseCache(manifest)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written .*check the path"):
        ShardWriter(ParseCache(tmp_path / "file" / "cache"))


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    writer = ShardWriter(ParseCache(tmp_path))
    writer.add(KEYS[0], PARSES[KEYS[0]])
    monkeypatch.setattr(shards.os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\); free some space"):
        writer.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "manifest.json"]
    monkeypatch.undo()
    writer.flush()  # what was collected is still there
    assert same(ParseCache(tmp_path).get(KEYS[0]), PARSES[KEYS[0]])


def test_when_a_shard_is_written(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(cache_module.time, "monotonic", lambda: now[0])

    def shards_after(keys: list[str], **limits: float) -> int:
        folder = tmp_path / json.dumps(limits)
        writer = ShardWriter(ParseCache(folder), **limits)
        for key in keys:
            writer.add(key, PARSES[key])
            now[0] += 10
        return len(list(folder.glob("*.safetensors")))

    assert shards_after(KEYS[:4]) == 0
    assert shards_after(KEYS[:5], documents=2) == 2
    assert shards_after(KEYS[:5], megabytes=1e-6) == 5
    assert shards_after(KEYS[:6], seconds=20) == 2
    with pytest.raises(KeyboardInterrupt), ShardWriter(ParseCache(tmp_path / "interrupted")) as writer:
        writer.add(KEYS[0], PARSES[KEYS[0]])
        raise KeyboardInterrupt
    assert ParseCache(tmp_path / "interrupted").missing(KEYS[:2]) == KEYS[1:2]


DOCUMENTS = [made_up_document(number, sentences=1 + number % 5) for number in range(23)]


def shares(cache: ParseCache, tasks: int, ranks: int) -> list[list[str]]:
    ids = []
    for task, rank in product(range(1, tasks + 1), range(ranks)):
        data = ParsingData(DOCUMENTS, cache, MadeUpParser(), shard=(task, tasks))
        data.trainer = SimpleNamespace(global_rank=rank, world_size=ranks)
        ids.append([request.id for batch in data.predict_dataloader() for request in batch])
    return ids


@pytest.mark.parametrize("tasks, ranks", [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_every_document_is_somebodys(tmp_path, tasks, ranks):
    dealt = shares(ParseCache(tmp_path), tasks, ranks)
    assert sorted(id for share in dealt for id in share) == sorted(document.id for document in DOCUMENTS)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 2


def test_finished_parses_do_not_change_the_shares_of_tasks(tmp_path):
    cache = ParseCache(tmp_path)
    before, done = shares(cache, 3, 1), DOCUMENTS[4:13]
    parse_missing(done, cache, MadeUpParser())
    ids = {document.id for document in done}
    assert shares(cache, 3, 1) == [[id for id in share if id not in ids] for share in before]
    # a rank with nothing left takes part all the same
    parse_missing(DOCUMENTS, cache, MadeUpParser())
    assert shares(cache, 1, 1) == [[]] and [len(share) for share in shares(cache, 1, 2)] == [1, 1]


def test_batches_keep_to_their_limits_and_lengths_together(tmp_path):
    data = ParsingData(DOCUMENTS, ParseCache(tmp_path), MadeUpParser(), batch_size=4, batch_characters=600)
    batches = list(data.predict_dataloader())
    lengths = [[len(request.text) for request in batch] for batch in batches]
    assert sum(map(len, batches)) == data.predict_dataloader().documents == len(DOCUMENTS)
    flat = [length for batch in lengths for length in batch]
    assert flat == sorted(flat, reverse=True)
    assert all(len(batch) <= 4 and (max(batch) * len(batch) <= 600 or len(batch) == 1) for batch in lengths)
    # none could have taken the next document in
    for batch, after in pairwise(lengths):
        assert len(batch) == 4 or max(batch) * (len(batch) + 1) > 600 or not after


def test_what_is_missing_is_parsed_once_and_empty_documents_are_named(tmp_path):
    cache, parser = ParseCache(tmp_path), MadeUpParser()
    assert parse_missing(DOCUMENTS[:5], cache, parser, batch_size=2) == 5
    assert parse_missing(DOCUMENTS[:7], cache, parser) == 2
    assert parse_missing(DOCUMENTS[:7], cache, parser) == 0
    assert sorted(parser.asked) == sorted(document.id for document in DOCUMENTS[:7])
    for document in DOCUMENTS[:7]:
        request = ParseRequest.of(document)
        assert same(cache.get(key_of(request, parser)), made_up_parse(request, 4))
    for other in (MadeUpParser("new weights"), MadeUpParser(band=3)):
        assert parse_missing(DOCUMENTS[:7], cache, other) == 7
    documents = [Document("empty", []), DOCUMENTS[0], Document("blank", [["  "]]), Document("twin", DOCUMENTS[0].parts)]
    cache, parser = ParseCache(tmp_path / "twins"), MadeUpParser()
    data = ParsingData(documents, cache, parser)
    data.setup()
    assert data.empty == ["empty", "blank"] and data.repeated == 1 and len(data.keys) == 1
    assert parse_missing(documents, cache, parser) == 1 and parser.asked == ["doc-0"]
    assert cache.get(key_of(ParseRequest.of(documents[3]), parser), id="twin").id == "twin"


def test_answers_that_do_not_fit_are_refused():
    requests = REQUESTS[2:4]
    answers = [made_up_parse(request, 4) for request in requests]
    others = r"MadeUpParser returned parses of .* for requests of \['doc-2', 'doc-3'\]"
    changed = r"document 'doc-2': asked for rows .*got rows side, 4 EDUs"
    for parses, parser, message in (
        (answers[:1], MadeUpParser(), others),
        (answers[::-1], MadeUpParser(), others),
        (answers, MadeUpParser(rows="nucleus"), changed),
    ):
        with pytest.raises(ValueError, match=message):
            add_answers(print, requests, parses, parser)


def test_documents_of_a_corpus(tmp_path, corpus_files):
    documents = CorpusDocuments(Files(**corpus_files), tmp_path)
    assert len(documents) == 40 and documents.skipped == []
    assert [document.id for document in documents] == [f"doc-{number}" for number in range(40)]
    assert next(d.id for d in CorpusDocuments(Files(**corpus_files), tmp_path, ["val"])) == "doc-26"
    with pytest.raises(IndexError):
        documents[40]
