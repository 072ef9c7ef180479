"""Workspaces and reports of `wandb-workspaces` from the descriptions in `shown.py`."""

from collections.abc import Sequence
from typing import Any

from datamodules.documents import UserError
from precis.dashboards.contents import SETTINGS, TRAINING, AblationReport, Dashboard

STEP = "trainer/global_step"


def _library() -> tuple[Any, Any, Any]:
    try:
        import wandb_workspaces.reports.v2 as reports
        import wandb_workspaces.workspaces as workspaces
        from wandb_workspaces import expr
    except ImportError:
        raise UserError(
            "dashboards need wandb-workspaces; pip install 'precis-suite[workspaces]', or compare without an account "
            "by precis compare FOLDER --html page.html"
        ) from None
    return reports, workspaces, expr


def sections(dashboard: Dashboard) -> list[tuple[str, list[Any]]]:
    """Return the sections with their panels in order, without empty ones."""
    reports, _, _ = _library()
    lines = (("losses", dashboard.losses), ("more", dashboard.more), ("training", TRAINING))
    all_sections = [
        ("test", [reports.BarPlot(title=key, metrics=[key], groupby=None) for key in dashboard.tested]),
        ("validation", [reports.LinePlot(title=key, x=STEP, y=[key]) for key in dashboard.scores]),
        *((name, [reports.LinePlot(title=key, x=STEP, y=[key]) for key in keys]) for name, keys in lines),
        ("heat maps", [reports.MediaBrowser(media_keys=[key]) for key in dashboard.heat_maps]),
        ("texts", [reports.WeavePanelSummaryTable(table_name=key) for key in dashboard.tables]),
    ]
    return [(name, panels) for name, panels in all_sections if panels]


def workspace(dashboard: Dashboard, entity: str, project: str) -> Any:
    """Return the workspace of a paper: its runs, newest first, grouped by sweep and job type."""
    _, workspaces, expr = _library()
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=dashboard.title,
        sections=[workspaces.Section(name=name, panels=panels, is_open=True) for name, panels in sections(dashboard)],
        settings=workspaces.WorkspaceSettings(x_axis=STEP),
        runset_settings=workspaces.RunsetSettings(
            filters=[expr.Tags().isin([dashboard.paper])],
            groupby=[expr.Metric("Group"), expr.Metric("JobType")],
            pinned_columns=[*(f"summary:{key}" for key in dashboard.tested), *(f"config:{key}" for key in SETTINGS)],
        ),
    )


def report(dashboard: Dashboard, entity: str, project: str) -> Any:
    """Return the report of a paper: notes on the scores, then the panels of its workspace."""
    reports, _, _ = _library()
    blocks: list[Any] = [reports.P(HOW), reports.TableOfContents()]
    for name, panels in sections(dashboard):
        runs = _runs(dashboard.paper, entity, project, ["JobType"])
        blocks += [reports.H2(name), reports.PanelGrid(runsets=[runs], panels=_placed(panels))]
    return reports.Report(project=project, entity=entity, title=dashboard.title, blocks=blocks)


def ablation_report(ablation: AblationReport, entity: str, project: str) -> Any:
    """Return the report of an ablation: its rows as groups of runs, averaged over seeds."""
    reports, _, _ = _library()
    runs = _runs(ablation.paper, entity, project, [f"config.{ablation.key}"])
    bars = [reports.BarPlot(title=key, metrics=[key]) for key in ablation.measures]
    lines = [reports.LinePlot(title=key, x=STEP, y=[key]) for key in ("val/rouge1", "val/loss")]
    rows = reports.UnorderedList(items=[f"{name}: {description}" for name, description in ablation.rows.items()])
    blocks = [
        reports.P(HOW),
        reports.H2("rows"),
        rows,
        reports.H2("scores on test"),
        reports.PanelGrid(runsets=[runs], panels=_placed(bars)),
        reports.H2("while training"),
        reports.PanelGrid(runsets=[runs], panels=_placed(lines)),
    ]
    return reports.Report(project=project, entity=entity, title=ablation.title, blocks=blocks)


HOW = (
    "Scores are F1 x 100; how ROUGE was computed stands in the config of each run, under signatures. Bars are means "
    "over seeds. Tests of differences, corrected for their number: precis compare, from the run folders alone."
)


def _runs(paper: str, entity: str, project: str, groupby: Sequence[str]) -> Any:
    reports, _, expr = _library()
    return reports.Runset(
        entity=entity, project=project, name=paper, filters=[expr.Tags().isin([paper])], groupby=list(groupby)
    )


def _placed(panels: Sequence[Any]) -> list[Any]:
    """Arrange panels in rows of three on the grid of W&B, which has 24 columns."""
    reports, _, _ = _library()
    for number, panel in enumerate(panels):
        panel.layout = reports.Layout(x=8 * (number % 3), y=6 * (number // 3), w=8, h=6)
    return list(panels)
