from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import Trainer
from small_extractive import DOCUMENTS, batch_of, bertsum, data
from tiny_models import write_bert

from datamodules.cache_folder import list_entries
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.extractive.selection import SelectionOptions
from lightning_modules.extractive.vector_cache import VectorCache
from lightning_modules.networks.passages import Reader


@pytest.fixture
def folder(tmp_path):
    sizes = {"vocab_size": 300, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 64}
    return write_bert(tmp_path / "encoder", [], **sizes)


def model(folder: str, frozen: bool = True, **arguments) -> BertSum:
    torch.manual_seed(1)
    return bertsum(**{"pooling": "mean", "dropout": 0.1, "checkpoint": folder, "frozen": frozen} | arguments)


@pytest.mark.parametrize("encoding", ["joint", "separate"])
@pytest.mark.parametrize("scoring", ["classifier", "document_cosine"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_scores_are_those_of_the_encoder_in_the_loop(folder, encoding, scoring, pooling):
    options = {"encoding": encoding, "scoring": scoring, "pooling": pooling}
    options["selection"] = SelectionOptions("triangle", 2)
    batch = batch_of(data(), DOCUMENTS[1:])
    expected, frozen = (model(folder, is_frozen, **options) for is_frozen in (False, True))
    for _ in range(2):  # computed, then from memory
        for with_document in (False, True):
            ours, theirs = (made.eval().score(batch, with_document) for made in (frozen, expected))
            assert torch.allclose(ours.logits[batch.mask], theirs.logits[batch.mask], atol=1e-5)
            assert torch.allclose(ours.vectors[batch.mask], theirs.vectors[batch.mask], atol=1e-5)
        assert torch.allclose(ours.document, theirs.document, atol=1e-5)
    assert [row.positions for row in frozen.summarize(batch)] == [row.positions for row in expected.summarize(batch)]
    for dtype in (torch.bfloat16, torch.float64):
        frozen = model(folder, True, **options).to(dtype).eval()
        assert [frozen.score(batch).logits.dtype for _ in range(2)] == [dtype, dtype]  # computed, then from memory


def test_another_run_reads_the_vectors_of_the_first(folder, tmp_path, monkeypatch):
    def in_run(**arguments) -> BertSum:
        """As a run of `precis fit` has it: with data that have a cache folder."""
        made = model(folder, **arguments)
        made.trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        made.trainer.datamodule = SimpleNamespace(cache_dir=tmp_path)
        return made.eval()

    batch = batch_of(data(), DOCUMENTS[1:])
    first = in_run()
    before = first.score(batch).logits
    first.on_train_epoch_end()
    (entry,) = list_entries(tmp_path)
    assert entry.kind == "vectors"
    monkeypatch.setattr(Reader, "forward", None)  # would raise
    assert torch.equal(in_run().score(batch).logits, before)
    # the same documents one at a time: a file has vectors of documents, not of batches
    single = in_run().score(batch_of(data(), DOCUMENTS[3:4]))
    assert torch.allclose(single.logits, before[2:3, : single.logits.shape[1]], atol=1e-5)
    in_run(pooling="max").score(batch)  # whose vectors are in the same file
    with pytest.raises(TypeError):
        in_run(encoding="separate").score(batch)
    with pytest.raises(TypeError):  # sentences that are split otherwise have other vectors
        in_run().score(batch_of(data(piece=5), DOCUMENTS[1:]))


def test_training_leaves_the_encoder_as_it_is_and_one_with_weights_to_train_is_refused(folder):
    batch = batch_of(data(), DOCUMENTS[1:])
    made = model(folder, dropout=0.5).train()
    assert not any(module.training for module in made.reader.modules()) and made.network.layers.training
    made.loss_terms(batch)["extraction"].backward()
    assert all(parameter.grad is None for parameter in made.reader.parameters())
    assert any(p.grad is not None for p in made.network.scorer.parameters())
    for arguments in ({"pooling": "self_attention"}, {"checkpoint": None}):
        with pytest.raises(ValueError, match=r"encoder\.frozen: encoder"):
            model(folder, **arguments)


def test_files_of_other_weights_and_damaged_ones_are_not_read_and_those_of_two_writers_joined(tmp_path):
    state, other = {"w": torch.zeros(2)}, {"w": torch.ones(2)}

    def vectors_of(text: str, weights=state, setting="joint", compute=lambda: 1 / 0) -> VectorCache:
        cache = VectorCache(weights, setting, folder=tmp_path)
        cache.vectors([[text]], [[0]], compute)
        return cache

    caches = [vectors_of(text, compute=lambda: torch.ones(1, 2, 3, 4)) for text in "ab"]  # two runs write at once
    for cache in caches:
        cache.save()
    for text in "ab":
        assert {vectors_of(text).path} == set((tmp_path / "vectors").iterdir())
    for weights, setting in ((other, "joint"), (state, "separate")):
        with pytest.raises(ZeroDivisionError):
            vectors_of("a", weights, setting)
    cache.path.write_bytes(b"damaged")
    with pytest.raises(ZeroDivisionError):
        vectors_of("a")
