"""Workspaces and a report of `wandb-workspaces` from the descriptions in `contents.py`."""

from collections.abc import Sequence
from typing import Any

import wandb_workspaces.reports.v2 as reports
import wandb_workspaces.workspaces as workspaces
from wandb_workspaces import expr

from precis.dashboards import contents
from precis.dashboards.contents import Dashboard

STEP = "trainer/global_step"
HOW = (
    "Scores are F1 x 100; how ROUGE was computed stands in the config of each run, under signatures. Bars are means "
    "over seeds. Tests of differences, corrected for their number: precis compare, from the run folders alone."
)


def sections(dashboard: Dashboard) -> list[tuple[str, list[Any]]]:
    """Return (title, panels) of each section of a dashboard, a panel per logged key, without empty sections."""
    all_sections = [
        ("test", _bars(dashboard.tested)),
        ("validation", _curves(dashboard.scores)),
        ("losses", _curves(dashboard.losses)),
        ("more", _curves(dashboard.more)),  # what is specific to the model of the dashboard
        ("training", _curves(contents.TRAINING)),  # the same for all models: gradient norm, throughput
        ("heat maps", [reports.MediaBrowser(media_keys=[key]) for key in dashboard.heat_maps]),
        ("texts", [reports.WeavePanelSummaryTable(table_name=key) for key in dashboard.tables]),
    ]
    return [(name, panels) for name, panels in all_sections if panels]


def workspace(dashboard: Dashboard, entity: str, project: str) -> workspaces.Workspace:
    """Return the W&B workspace of a paper's model: curves and tables of runs, by group (the sweep) and job type."""
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=dashboard.title,
        sections=[workspaces.Section(name=name, panels=panels, is_open=True) for name, panels in sections(dashboard)],
        settings=workspaces.WorkspaceSettings(x_axis=STEP),  # the optimizer step
        runset_settings=workspaces.RunsetSettings(
            filters=[expr.Tags().isin([dashboard.model])],  # the class of the model, which is a tag of each run
            groupby=[expr.Metric("Group"), expr.Metric("JobType")],
            pinned_columns=[
                *(f"summary:{key}" for key in dashboard.tested),  # scores of the test
                *(f"config:{key}" for key in contents.SETTINGS),  # such as the seed
            ],
        ),
    )


def ablation_report(entity: str, project: str) -> reports.Report:
    """Return the W&B report on the ablations of RSTformer: each is a group of runs, averaged over seeds."""
    blocks = [
        reports.P(HOW),  # how scores were computed, and how to test them
        reports.H2("ablations"),
        reports.UnorderedList(items=[f"{name}: {meaning}" for name, meaning in contents.ABLATIONS.items()]),
        reports.H2("scores on test"),
        _grid(entity, project, _bars(contents.TESTED)),
        reports.H2("while training"),
        _grid(entity, project, _curves(("val/rouge1", "val/loss"))),
    ]
    return reports.Report(project=project, entity=entity, title=contents.ABLATION_TITLE, blocks=blocks)


def _bars(keys: Sequence[str]) -> list[Any]:
    return [reports.BarPlot(title=key, metrics=[key]) for key in keys]


def _curves(keys: Sequence[str]) -> list[Any]:
    return [reports.LinePlot(title=key, x=STEP, y=[key]) for key in keys]


def _grid(entity: str, project: str, panels: list[Any]) -> reports.PanelGrid:
    """Return panels of the ablated runs as a grid, with three panels in each row."""
    for number, panel in enumerate(panels):  # a row has 24 columns, so each panel has 8
        panel.layout = reports.Layout(x=8 * (number % 3), y=6 * (number // 3), w=8, h=6)
    runs = reports.Runset(
        entity=entity, project=project, name=contents.ABLATED,
        filters=[expr.Tags().isin([contents.ABLATED])], groupby=[f"config.{contents.ABLATION_KEY}"],
    )  # fmt: skip
    return reports.PanelGrid(runsets=[runs], panels=panels)
