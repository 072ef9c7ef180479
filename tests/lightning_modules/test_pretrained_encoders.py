import pytest
import torch
import yaml
from cases import CASES
from tiny_models import make_summarizer, write_bert

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.graphsum import GraphSumData
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.extractive.zero_shot import ZeroShot

CASE_OF = {case.model.rsplit(".", 1)[-1]: case for case in reversed(CASES)}
WORDS = ["the", "old", "mill", "harbour", "library", "orchard", "is", "a", "from", "every", "morning", "rain", "."]
LIMIT = 24  # positions of the encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": LIMIT}
    return write_bert(tmp_path_factory.mktemp("bert"), WORDS, **sizes)


def test_names_and_outputs_within_the_limit_are_the_same(encoder):
    models = {}
    for choice in ("windows", "extend", "truncate"):
        torch.manual_seed(0)
        models[choice] = CASE_OF["BertSum"].build_model(checkpoint=encoder, long_input=choice, positions=60).eval()
    states = {choice: model.state_dict() for choice, model in models.items()}
    assert list(states["windows"]) == list(states["extend"]) == list(states["truncate"])
    for choice, positions in {"windows": LIMIT, "extend": 60, "truncate": LIMIT}.items():
        assert models[choice].reader.max_tokens == positions
    ids, mask = torch.arange(LIMIT)[None] % len(WORDS), torch.ones(1, LIMIT, dtype=torch.bool)
    windows, *others = (model.reader(ids, mask) for model in models.values())
    torch.testing.assert_close(others, [windows, windows])


def arguments(case, corpus_files, run, *more):
    trainer = ["--trainer.accelerator=cpu", "--trainer.max_steps=1", "--trainer.limit_val_batches=1", "--wandb=off"]
    return ["fit", *case.arguments(corpus_files), *trainer, "--previews=0", f"--run_dir={run}", *more]


@pytest.mark.integration
@pytest.mark.parametrize("name", ["BertSum", "BertSumAbs"])
def test_truncation_needs_a_limit_of_the_data(name, encoder, corpus_files, tmp_path, precis):
    options = arguments(CASE_OF[name], corpus_files, tmp_path / "run", f"--model.encoder.checkpoint={encoder}")
    options.append("--model.encoder.long_input=truncate")
    for limit in ([], ["--data.max_source=25"]):
        done = precis(*options, *limit)
        assert done.status == 1 and done.err.count("precis: error") == 1, done.err
        assert f"the encoder reads {LIMIT} tokens" in done.err and f"set data.max_source to {LIMIT} or less" in done.err
    precis(*options, f"--data.max_source={LIMIT}").succeeded()
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["model"]["init_args"]["encoder"]["long_input"] == "truncate"
    assert f"data.max_source {LIMIT}" in (tmp_path / "run" / "truncation.csv").read_text(), "what is cut is counted"


def test_a_pretrained_encoder_decoder_is_checked_before_training(corpus_files, tmp_path, precis):
    checkpoint = make_summarizer("bart", tmp_path / "bart", [" ".join(WORDS)], window=40)
    options = arguments(CASE_OF["Pegasus"], corpus_files, tmp_path / "run", f"--model.encoder.checkpoint={checkpoint}")
    precis(*options, "--data.max_source=41").refused("the encoder reads 40 tokens, and data.max_source is 41")


# What a folder with a pretrained encoder holds, and not its path alone, tells caches apart


def parser(encoder: str) -> DiscourseParser:
    torch.manual_seed(0)
    return DiscourseParser.of_settings(encoder=encoder, layers=[1], hidden_size=16, fit_size=4)


@pytest.mark.parametrize("of_weights, read", [
    (True, lambda name: ZeroShot(name).fingerprint),
    (True, lambda name: parser(name).fingerprint),
    (False, lambda name: ExtractiveData(Texts([]), 100, name).tokenizer_settings()),
    (False, lambda name: GraphSumData(Texts([]), checkpoint=name).tokenizer_settings()),
])  # fmt: skip
def test_fingerprints_tell_weights_and_settings_of_the_tokenizer_vocabularies_apart(of_weights, read, tmp_path):
    first = read(write_bert(tmp_path, WORDS))
    assert read(write_bert(tmp_path, WORDS)) == first
    assert (read(write_bert(tmp_path, WORDS, seed=1)) != first) == of_weights
    assert of_weights or read(write_bert(tmp_path, WORDS[::-1])) != first
