"""Who parses what: every document once, whatever is done already; batches within their limits."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from made_up_parses import MadeUpParser, made_up_document, made_up_parse, same

from datamodules.corpora import Files
from datamodules.discourse.cache import ParseCache
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document
from datamodules.parsing import CorpusDocuments, ParsingData, add_answers, key_of, parse_missing

DOCUMENTS = [made_up_document(number, sentences=1 + number % 5) for number in range(23)]


def shares(cache: ParseCache, tasks: int, ranks: int, **options) -> list[list[str]]:
    found = []
    for task in range(1, tasks + 1):
        for rank in range(ranks):
            data = ParsingData(DOCUMENTS, cache, MadeUpParser(), shard=(task, tasks), **options)
            data.trainer = SimpleNamespace(global_rank=rank, world_size=ranks)
            found.append([request.id for batch in data.predict_dataloader() for request in batch])
    return found


@pytest.mark.parametrize("tasks, ranks", [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_every_document_is_somebodys(tmp_path, tasks, ranks):
    dealt = shares(ParseCache(tmp_path), tasks, ranks)
    assert sorted(id for share in dealt for id in share) == sorted(document.id for document in DOCUMENTS)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 2


def test_finished_parses_do_not_change_the_shares_of_tasks(tmp_path):
    cache = ParseCache(tmp_path)
    before = shares(cache, 3, 1)
    parse_missing(DOCUMENTS[4:13], cache, MadeUpParser())
    done = {document.id for document in DOCUMENTS[4:13]}
    assert shares(cache, 3, 1) == [[id for id in share if id not in done] for share in before]
    # a rank with nothing left takes part all the same
    parse_missing(DOCUMENTS, cache, MadeUpParser())
    assert shares(cache, 1, 1) == [[]]
    assert [len(share) for share in shares(cache, 1, 2)] == [1, 1]


def test_batches_keep_to_their_limits_and_lengths_together(tmp_path):
    data = ParsingData(DOCUMENTS, ParseCache(tmp_path), MadeUpParser(), batch_size=4, batch_characters=600)
    batches = list(data.predict_dataloader())
    lengths = [[len(request.text) for request in batch] for batch in batches]
    assert sum(map(len, batches)) == data.predict_dataloader().documents == len(DOCUMENTS)
    assert [n for batch in lengths for n in batch] == sorted((n for batch in lengths for n in batch), reverse=True)
    assert all(len(batch) <= 4 and (max(batch) * len(batch) <= 600 or len(batch) == 1) for batch in lengths)
    # none could have taken the next document in
    for batch, after in pairwise(lengths):
        assert len(batch) == 4 or max(batch) * (len(batch) + 1) > 600 or not after


def test_empty_documents_are_named_and_equal_ones_parsed_once(tmp_path):
    documents = [Document("empty", []), DOCUMENTS[0], Document("blank", [["  "]]), Document("twin", DOCUMENTS[0].parts)]
    cache, parser = ParseCache(tmp_path), MadeUpParser()
    data = ParsingData(documents, cache, parser)
    data.setup()
    assert data.empty == ["empty", "blank"] and data.repeated == 1 and len(data.keys) == 1
    assert parse_missing(documents, cache, parser) == 1 and parser.asked == ["doc-0"]
    assert cache.get(key_of(ParseRequest.of(documents[3]), parser), id="twin").id == "twin"


def test_parse_missing_parses_what_is_missing(tmp_path):
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


def test_answers_that_do_not_fit_are_refused():
    requests = [ParseRequest.of(document) for document in DOCUMENTS[2:4]]
    answers = [made_up_parse(request, 4) for request in requests]
    parser = MadeUpParser()
    for wrong in (answers[:1], answers[::-1]):
        message = r"MadeUpParser returned parses of .* for requests of \['doc-2', 'doc-3'\]"
        with pytest.raises(ValueError, match=message):
            add_answers(print, requests, wrong, parser)
    for changed in (MadeUpParser(rows="nucleus"), MadeUpParser(band=3)):
        with pytest.raises(ValueError, match=r"document 'doc-2': asked for rows .*got rows side, 4 EDUs"):
            add_answers(print, requests, answers, changed)


def test_documents_of_a_corpus(tmp_path, corpus_files):
    documents = CorpusDocuments(Files(**corpus_files), tmp_path)
    assert len(documents) == 40 and documents.skipped == []
    assert [document.id for document in documents] == [f"doc-{number}" for number in range(40)]
    assert next(d.id for d in CorpusDocuments(Files(**corpus_files), tmp_path, ["val"])) == "doc-26"
    with pytest.raises(IndexError):
        documents[40]
