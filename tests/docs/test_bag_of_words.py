"""The model of the tutorial `docs/add_a_paper.md`, whose code is shown on the page."""

import math
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from datamodules.corpora import Files
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Summarizer

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def tutorial(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    modules = [import_module(name) for name in ("bag_of_words", "bag_of_words_data")]
    yield modules
    for module in modules:
        sys.modules.pop(module.__name__, None)


def test_the_loss_equals_that_of_the_printed_equations(tutorial, corpus_files):
    module, data_module = tutorial
    data = data_module.BagOfWordsData(Files(**corpus_files), vocab_size=60, max_source=30, max_target=12, batch_size=4)
    data.prepare_data()
    data.setup("fit")
    torch.manual_seed(0)
    model = module.BagOfWords(vocab_size=60, hidden_size=8)
    model.set_tokenizer(data.tokenizer)
    batch, documents = next(iter(data.train_dataloader())), []
    with torch.no_grad():
        for source, mask, inputs, target in zip(batch.source, batch.source_mask, batch.target_input, batch.target):
            words = model.embedding.weight[source[mask]]
            states, _ = model.decoder(model.embedding.weight[inputs[target > 0]], words.mean(0, keepdim=True))
            contexts = (states @ words.T / math.sqrt(8)).softmax(1) @ words
            logits = model.output(torch.cat([states, contexts], 1))
            documents.append(torch.nn.functional.cross_entropy(logits, target[target > 0]))
        assert torch.isclose(model.loss_terms(batch)["nll"], sum(documents) / len(documents), atol=1e-5)
    model.set_tokenizer(Vocabulary(["。"], language="zh"))  # the only word that can be generated
    model.decoding = DecodingOptions(beam_size=1, min_length=2, max_length=4)
    assert set(model.summarize(batch)[0].sentences) == {"。"}  # English rules would not split "。。"

    class WithoutDecoding(module.BagOfWords):  # its constructor has no argument `decoding`
        def __init__(self):
            Summarizer.__init__(self, vocab_size=9, decoding=None)

    assert WithoutDecoding().decoding == DecodingOptions()


def test_the_cache_follows_changes_of_the_code(tutorial, corpus_files, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for number in (1, 2):
        code = "from bag_of_words_data import *\nclass Own(BagOfWordsData):\n"
        code += f"    truncation_limits = lambda *_: {{}}\n    encode = lambda *_: {{'length': {number}}}\n"
        (tmp_path / f"own{number}.py").write_text(code, encoding="utf-8")
        data = import_module(f"own{number}").Own(Files(**corpus_files))
        data.prepare_splits(["train"])
        assert data.features("train")["length"][0] == number


@pytest.mark.integration
def test_it_trains_and_is_tested_by_the_commands_of_the_page(tutorial, corpus_files, tmp_path, monkeypatch, precis):
    monkeypatch.chdir(EXAMPLES)
    files = [f"--data.corpus.{split}={path}" for split, path in corpus_files.items()]
    small = ["--model.vocab_size=60", "--model.hidden_size=8", "--model.decoding={min_length: 1, max_length: 8}"]
    named = ["--model=bag_of_words.BagOfWords", "--data=bag_of_words_data.BagOfWordsData"]
    fit = ["fit", "--config", "bag_of_words.yaml", *named, "--data.corpus=Files", *files, *small]
    fit += ["--run_dir", tmp_path / "run", "--wandb=off", "--trainer.accelerator=cpu", "--previews=0"]
    fit += ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    precis(*fit).succeeded()
    precis("test", "--run", tmp_path / "run", "--trust").succeeded()
    assert len((tmp_path / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()) == 7
