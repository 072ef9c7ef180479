from itertools import combinations

import pytest
import torch
from conftest import prepared

from datamodules.corpora import Files, Texts
from datamodules.corpora.corpus import as_document
from datamodules.discourse.cache import MissingParse
from datamodules.discourse.distributions import decode, random_ldd, tree_ldd
from datamodules.discourse.parses import ParseRequest
from datamodules.documents import Document, UserError
from datamodules.rstformer import RSTformerData
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from precis.config.parsers import provide_parsers
from tests.made_up_parses import RELATIONS, MadeUpParser, made_up_parse

CONTROLS = ("ria", "permuted", "other")


def data_of(files, tmp_path, **arguments) -> RSTformerData:
    settings = {"vocab_size": 300, "max_source": 40, "max_target": 12, "half_width": 8, "batch_size": 4}
    data = RSTformerData(Files(**files), cache_dir=tmp_path, **settings | {"parser": MadeUpParser(band=8)} | arguments)
    provide_parsers(data)
    return data


def ready(files, tmp_path, **arguments) -> RSTformerData:
    return prepared(data_of(files, tmp_path, **arguments))


def test_a_batch_is_text_edus_and_their_discourse(corpus_files, tmp_path):
    data = ready(corpus_files, tmp_path, num_proc=2)
    batch = next(iter(data.test_dataloader()))
    documents = {row["id"]: as_document(row) for row in data.documents("test")}
    for n, document in enumerate(documents[name] for name in batch.ids):
        parse = made_up_parse(ParseRequest.of(document), 8)
        length = int(batch.source_mask[n].sum())
        ids, edus = batch.source[n, :length].tolist(), batch.token_edu[n]
        assert (ids[0], ids[-1]) == (data.tokenizer.start, data.tokenizer.stop) and edus[0] == edus[length - 1] == -1
        assert batch.source[n, length:].eq(data.tokenizer.pad).all() and edus[length:].eq(-1).all()
        # the words of an EDU are its tokens' text, but for a document's end that was cut off
        for edu, (start, end) in enumerate(parse.edus.tolist()):
            assert document.text[start:end].startswith(data.tokenizer.decode(batch.source[n][edus == edu].tolist()))
        expected = decode(parse.code(min(8, parse.size - 1)))
        seen, half, own = int(batch.token_edu[n].max()) + 1, batch.ldd.shape[2] // 2, expected.shape[1] // 2
        ldd = decode(batch.ldd[n])
        torch.testing.assert_close(ldd[:seen, half - own : half + own + 1], expected[:seen])
        assert ldd[seen:].eq(0).all() and ldd[:, half].eq(0).all()
        # gamma is the parser's, whatever was cut off and however narrow the band
        assert batch.gamma[n, :seen].equal(parse.gamma[:seen]) and batch.gamma[n, seen:].eq(0).all()
        target = batch.target[n, : batch.target_lengths[n]].tolist()
        assert data.tokenizer.decode(target) == document.references[0][0][: len(data.tokenizer.decode(target))]
        assert batch.target[n, len(target) :].eq(data.tokenizer.pad).all()
    assert batch.source.shape[1] <= 40 and batch.target.shape[1] <= 12
    assert batch.global_mask[:, 0].eq(1).all() and batch.global_mask[:, 1:].eq(0).all()


def test_each_ablation_has_its_own_ldd_and_controls_are_a_function_of_the_seed(corpus_files, tmp_path):
    def first_batch(ablation, seed=0):
        return next(iter(ready(corpus_files, tmp_path, ablation=ablation, ablation_seed=seed).test_dataloader()))

    names = ("none", "wac", "no_labels", "one_best", "ria", "permuted", "other")
    ldds = {ablation: decode(first_batch(ablation).ldd) for ablation in names}
    for one, other in combinations(("none", "ria", "permuted", "other"), 2):
        assert (ldds[one] - ldds[other]).abs().max() > 0.1
    assert torch.equal(ldds["none"], ldds["wac"]) and torch.equal(ldds["none"], ldds["no_labels"])
    assert set(ldds["one_best"].unique().tolist()) == {0.0, 1.0} and not torch.equal(ldds["one_best"], ldds["none"])
    size = int(first_batch("none").token_edu[0].max()) + 1
    drawn, expected = ldds["ria"][0, :size], random_ldd(50, ldds["ria"].shape[2] // 2, len(RELATIONS))[:size]
    torch.testing.assert_close(drawn[drawn > 0], expected[drawn > 0], atol=0.005, rtol=0)  # the same in every document
    for control in CONTROLS:
        assert torch.equal(decode(first_batch(control).ldd), ldds[control])
        assert not torch.equal(decode(first_batch(control, 2).ldd), ldds[control])


def test_other_takes_the_discourse_of_training_documents_and_a_run_keeps_it(corpus_files, tmp_path):
    data = ready(corpus_files, tmp_path, ablation="other")
    training = [data.cache.get(key) for key in set(data.features("train")["parse"])]
    digests = {parse.text_digest for parse in training}
    for row in data.features("test"):
        parse = data.cache.get(row["parse"])
        assert data.read_discourse().choose(parse, parse.size).text_digest in digests - {parse.text_digest}
    # a run is read back for one text that no other document is beside, with the cache somewhere else
    for _ in range(2):  # a run that is resumed writes its folder once more
        data.save_tokenizer(tmp_path / "run")
    assert len(list((tmp_path / "run" / "other_documents").glob("*.safetensors"))) == 1
    corpus = Texts([("one", "The otter, which swims, guards the mill. The heron watches, and nobody sees it.")])
    single = data_of(corpus_files, tmp_path / "elsewhere", ablation="other", tokenizer_dir=tmp_path / "run")
    single.corpus, single.tokenizer = corpus, single.load_tokenizer(tmp_path / "run")
    (batch,) = single.test_dataloader()
    (row,) = single.features("test")
    parse, read = single.cache.get(row["parse"]), int(batch.token_edu.max()) + 1
    assert torch.equal(batch.ldd[0], data.read_discourse().codes(parse, read))


def test_each_ablation_has_its_own_gamma(corpus_files, tmp_path):
    names = ("none", "one_best", *CONTROLS)
    data = {name: ready(corpus_files, tmp_path, ablation=name, half_width=2) for name in names}
    batches = {name: next(iter(each.test_dataloader())) for name, each in data.items()}
    documents = {row["id"]: as_document(row) for row in data["none"].documents("test")}
    for n, name in enumerate(batches["none"].ids):
        parse = made_up_parse(ParseRequest.of(documents[name]), 8)
        seen = int(batches["none"].token_edu[n].max()) + 1
        gamma = {ablation: batch.gamma[n, :seen] for ablation, batch in batches.items()}
        assert gamma["none"].equal(parse.gamma[:seen])
        assert gamma["permuted"].sort().values.equal(parse.gamma[:seen].sort().values)
        whole = tree_ldd(parse.tree, parse.size, len(RELATIONS), parse.rows)
        torch.testing.assert_close(gamma["one_best"], whole.sum((1, 2))[:seen] / parse.size)
        values = random_ldd(parse.size, 2, len(RELATIONS)).sum(-1)[:seen]
        means = values.sum(1) / values.gt(0).sum(1) * (parse.size - 1) / parse.size
        torch.testing.assert_close(gamma["ria"], means, atol=0.01, rtol=0)
        parses = [other for other in data["other"].read_discourse().parses if other.text_digest != parse.text_digest]
        assert any(set(gamma["other"].tolist()) <= set(other.gamma.tolist()) for other in parses)


def test_an_empty_document_has_no_discourse_and_another_must_have_one(corpus_files, tmp_path):
    data = ready(corpus_files, tmp_path, parser=None, ablation="no_discourse")
    batch = next(iter(data.test_dataloader()))
    assert batch.ldd is None and batch.token_edu.eq(-1).all() and not (tmp_path / "parses").exists()
    data = ready(corpus_files, tmp_path)
    one = data.encode(Document("a", [["The otter, which swims, guards the mill."]], [["An otter."]]))
    empty = data.encode(Document("b", [[]], []))
    assert empty["parse"] == "" and empty["source"] == [data.tokenizer.start, data.tokenizer.stop]
    batch = data.collate([{**empty, "id": "b", "references": []}])
    assert batch.ldd.eq(0).all() and batch.token_edu.eq(-1).all()
    with pytest.raises(MissingParse, match="no parse of document 'c'"):
        data.collate([{**one, "id": "c", "references": []}])
    # a folder that was named has the parses of training
    folder = data.parses
    data_of(corpus_files, tmp_path, parses=folder).prepare_data()
    before = sorted(folder.glob("*.safetensors"))
    other = data_of(corpus_files, tmp_path, parses=folder, parser=RightBranchingParser("nucleus", band=8))
    options = "by this parser with --rows nucleus --band 8 --language en; run `precis parse` with these options"
    with pytest.raises(UserError, match=rf"no parse of \d+ documents of train \(.*\.\.\.\) {options}"):
        other.prepare_data()
    assert sorted(folder.glob("*.safetensors")) == before


def test_a_name_stands_for_the_parser_that_the_command_parses_with(corpus_files, tmp_path):
    given = ready(corpus_files, tmp_path, parser=RightBranchingParser(), half_width=8)
    before = sorted(given.parses.glob("*.safetensors"))
    named = ready(corpus_files, tmp_path, parser="right_branching", half_width=8)
    assert sorted(named.parses.glob("*.safetensors")) == before  # as wide as `precis parse` makes them
    for one, other in zip(given.test_dataloader(), named.test_dataloader(), strict=True):
        assert torch.equal(one.ldd, other.ldd) and torch.equal(one.token_edu, other.token_edu)
    assert data_of(corpus_files, tmp_path, parser="right_branching", half_width=200).parser.band == 200
    with pytest.raises(UserError, match="no parser 'nobody': there are default, mpnet, small, right_branching"):
        ready(corpus_files, tmp_path, parser="nobody")
    alone = RSTformerData(Files(**corpus_files), cache_dir=tmp_path, vocab_size=300, parser="right_branching")
    with pytest.raises(UserError, match="cannot load parsers by name; pass a parser, or set load_parser"):
        _ = alone.parser


def test_settings_that_cannot_be_are_refused(corpus_files, tmp_path):
    for changes, message in (
        ({"parser": None}, r"data\.parser is missing"),
        ({"half_width": 64}, r"data\.half_width 64: the parser gives 8"),
        ({"max_source": 2}, r"data\.max_source must be at least 3"),
    ):
        with pytest.raises(ValueError, match=message):
            data_of(corpus_files, tmp_path, **changes)
