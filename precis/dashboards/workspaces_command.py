"""`precis workspaces`: makes the workspaces and reports at Weights & Biases."""

from pathlib import Path

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from precis.dashboards.build import ablation_report, report, workspace
from precis.dashboards.contents import ABLATIONS, PAPERS
from precis.runs.wandb_login import logged_in
from precis.sweeping.sync import find_runs


def workspaces(arguments: list[str]) -> None:
    """`precis workspaces --entity NAME`: create workspaces and reports at W&B for each paper and RSTformer's ablations.

    Runs are uploaded by `precis sync`, or during training if you are logged in. Without an account, --draw FOLDER draws
    the workspaces from the offline records of a run or of the runs of a sweep."""
    parser = ArgumentParser(prog="precis workspaces", description=workspaces.__doc__, exit_on_error=False)
    parser.add_argument("--entity", type=str, default="", help="user or team at W&B")
    parser.add_argument("--project", type=str, default="precis", help="project at W&B")
    parser.add_argument("--paper", type=str | None, default=None, help="only this model, such as RSTformer")
    parser.add_argument("--dry-run", action="store_true", help="print their contents without creating them")
    parser.add_argument("--draw", type=Path | None, default=None, help="run or sweep folder whose records are drawn")
    parser.add_argument("--out", type=Path, default=Path("workspaces"), help="folder of the pictures of --draw")
    options = parser.parse_args(arguments)
    if options.draw is not None:
        _draw(options.draw, options.out)
        return
    papers = [dashboard for dashboard in PAPERS if options.paper in (None, dashboard.paper)]
    ablations = [ablation for ablation in ABLATIONS if options.paper in (None, ablation.paper)]
    if not papers:
        raise UserError(f"no dashboard for {options.paper!r}; there are {', '.join(d.paper for d in PAPERS)}")
    if options.dry_run:
        for dashboard in papers:
            print(f"{dashboard.title}: {', '.join(dashboard.history())}")
        for ablation in ablations:
            print(f"{ablation.title}: {', '.join(ablation.measures)} by {ablation.key}")
        return
    if not options.entity:
        raise UserError("--entity is missing: the user or team at W&B whose project it is")
    if not logged_in():
        raise UserError("not logged in to W&B; run `wandb login`, or set WANDB_API_KEY")
    project = (options.entity, options.project)
    pages = [*(workspace(dashboard, *project) for dashboard in papers), *(report(d, *project) for d in papers)]
    for page in [*pages, *(ablation_report(ablation, *project) for ablation in ablations)]:
        print(page.save().url)


def _draw(folder: Path, out: Path) -> None:
    """Draw the workspaces of the runs in a folder that have records, and print the names of the pictures."""
    from precis.dashboards.draw_workspaces import draw_workspaces  # imports matplotlib
    from precis.dashboards.offline import read_offline_run

    paths = [path for path in find_runs(folder) if (path / "wandb").is_dir()]
    if not paths:
        raise UserError(f"{folder}: no run with offline records of W&B; train with --wandb offline")
    for path in draw_workspaces([read_offline_run(path) for path in paths], out):
        print(path)
