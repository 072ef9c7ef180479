import json
from pathlib import Path

import matplotlib.image
import pytest
import wandb
import yaml
from cases import CASES
from conftest import run_main
from wandb_file import OfflineRun, inspect

import lightning_modules
from precis.dashboards.contents import ABLATED, ABLATION_KEY, ABLATIONS, PAPERS, SETTINGS
from tests.made_up_treebank import made_up_treebank
from tests.test_configs import CONFIGS, PARSING

DASHBOARDS = {dashboard.model: dashboard for dashboard in PAPERS}
SMALL_CASES = {(case.model, case.data): case for case in CASES}
TRAINER = {"accelerator": "cpu", "max_steps": 2, "max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 2}
TRAINER |= {"limit_test_batches": 2, "log_every_n_steps": 1, "val_check_interval": 2, "check_val_every_n_epoch": 1}
TRAINER |= {"enable_progress_bar": "false", "enable_model_summary": "false"}
# the argument with the name of a pretrained model, which is not downloaded
PRETRAINED = dict.fromkeys(("Pegasus", "RSTformer", "BertSum", "BertSumAbs", "MatchSum"), "encoder.checkpoint")


def record(model: str, folder: Path, corpus_files: dict[str, str]) -> Path:
    """Return a run of a model's first shipped config, made small: trained for two steps, validated and tested."""
    configs = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONFIGS}
    path = next(path for path, config in configs.items() if config["model"]["class_path"].endswith(f".{model}"))
    if path.parent.name in PARSING:
        treebank = made_up_treebank(folder / "trees.jsonl", documents=3)
        small = ["--model.hidden_size=8", "--model.members=1", "--model.fit_size=2", "--model.encoder.checkpoint=small"]
        small += ["--data.licences=null", *(f"--data.{split}={treebank}" for split in ("train", "val", "test"))]
    else:
        case = SMALL_CASES[f"lightning_modules.{model}", configs[path]["data"]["class_path"]]
        small = [*case.arguments(corpus_files), "--previews=2"]
        small += ["--data.corpus.document=document", "--data.corpus.summary=summary"]
        if option := PRETRAINED.get(model):
            small.append(f"--model.{option}=null")
        small += ["--model.coverage=true"] if model == "PointerGenerator" else []
    trainer, run = [f"--trainer.{name}={value}" for name, value in TRAINER.items()], folder / "run"
    start = ["fit", f"--config={path}", *small, *trainer, "--start_from=null", "--wandb=offline", f"--run_dir={run}"]
    assert run_main(*start) == 0 and run_main("test", f"--run={run}") == 0
    wandb.teardown()  # its service writes a little later
    return run


@pytest.mark.integration
@pytest.mark.parametrize("model", sorted(DASHBOARDS.keys() - {"PretrainedSummarizer"}))  # which no config trains
def test_every_chart_of_the_workspace_is_in_the_records(model, tmp_path, corpus_files):
    dashboard, run = DASHBOARDS[model], record(model, tmp_path, corpus_files)
    offline = OfflineRun(run)
    assert set(dashboard.history()) <= {key.removesuffix("._type") for key in offline.history}
    assert set(SETTINGS) - ({"signatures.rouge1"} if not dashboard.tables else set()) <= offline.config.keys()
    assert dashboard.model != ABLATED or ABLATION_KEY in offline.config
    assert dashboard.model in offline.tags, "the filter of the workspace"
    for key in dashboard.tables:
        paths = list(run.glob(f"wandb/**/media/table/**/{key}_*.table.json"))
        assert paths, key
        for table in (json.loads(path.read_text(encoding="utf-8")) for path in paths):
            assert table["columns"][:3] == ["id", "reference", "summary"] and table["data"]
            assert {len(row) for row in table["data"]} == {len(table["columns"])}
    for key in dashboard.heat_maps:
        paths = list(run.glob(f"wandb/**/media/images/**/{key}_*.png"))
        assert paths, key
        for height, width, channels in (matplotlib.image.imread(path).shape for path in paths):
            assert min(height, width) > 50 and channels == 4
    viewed = inspect(run / "wandb")  # W&B's viewer for the terminal
    assert viewed["state"] == "finished" and dashboard.model in viewed["tags"]
    assert set(dashboard.tested) <= set(viewed["summary"])


def test_workspaces_ask_for_every_key_and_the_report_has_the_rows_of_the_ablation():
    pytest.importorskip("wandb_workspaces", reason="needs the optional package wandb-workspaces")
    from lightning_modules.rstformer.injection import ABLATIONS as ROWS
    from precis.dashboards.build import ablation_report, workspace

    for dashboard in PAPERS:
        spec = workspace(dashboard, "somebody", "precis")._to_model().model_dump_json(by_alias=True)
        assert [key for key in dashboard.history() if f'"{key}"' not in spec] == []
        assert dashboard.model in spec and '"jobType"' in spec
    assert set(ABLATIONS) == set(ROWS)
    runsets = [runset for block in ablation_report("a", "b").blocks for runset in getattr(block, "runsets", [])]
    groups = {str(group) for runset in runsets for group in runset.groupby}
    assert groups == {"config.model.init_args.injection.ablation"}


def test_every_model_has_a_dashboard_also_without_an_account(precis):
    models = set(lightning_modules.__all__) - {"EduSegmenter"}  # trained once, for the parser
    assert models == {dashboard.model for dashboard in PAPERS}
    done = precis("workspaces", "--dry-run", "--paper", "RSTformer").succeeded()
    assert "WAC and RIA" in done.out and "test/rougeLsum" in done.out
    assert "not logged in" in precis("workspaces", "--entity", "me").err
