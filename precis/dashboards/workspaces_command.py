"""`precis workspaces`: makes the workspaces and reports at Weights & Biases."""

from jsonargparse import ArgumentParser

from datamodules.documents import UserError
from precis.dashboards.contents import ABLATED, ABLATION_KEY, ABLATION_TITLE, PAPERS, TESTED
from precis.runs.run_state import logged_in


def workspaces(arguments: list[str]) -> None:
    """`precis workspaces --entity NAME`: create a workspace at W&B for each paper, and a report of the ablations.

    Runs are uploaded by `wandb sync`, or during training if you are logged in. Without an account, `precis compare
    FOLDER --html page.html` compares the runs."""
    parser = ArgumentParser(prog="precis workspaces", description=workspaces.__doc__, exit_on_error=False)
    parser.add_argument("--entity", type=str, default="", help="user or team at W&B")
    parser.add_argument("--project", type=str, default="precis", help="project at W&B")
    parser.add_argument("--paper", type=str | None, default=None, help="only this model, such as RSTformer")
    parser.add_argument("--dry-run", action="store_true", help="print their contents without creating them")
    options = parser.parse_args(arguments)
    dashboards = [dashboard for dashboard in PAPERS if options.paper in (None, dashboard.model)]  # model: a class
    has_report = options.paper in (None, ABLATED)  # the model with ablations
    if not dashboards:
        raise UserError(f"no dashboard for {options.paper!r}; there are {', '.join(d.model for d in PAPERS)}")
    if options.dry_run:
        for dashboard in dashboards:
            print(f"{dashboard.title}: {', '.join(dashboard.history())}")  # the keys of logged values
        if has_report:
            print(f"{ABLATION_TITLE}: {', '.join(TESTED)} by {ABLATION_KEY}")  # the keys of test scores
        return
    if not options.entity:
        raise UserError("--entity is missing: the user or team at W&B whose project it is")
    if not logged_in():
        raise UserError("not logged in to W&B; run `wandb login`, or set WANDB_API_KEY")
    try:
        from precis.dashboards.build import ablation_report, workspace  # imports an optional package
    except ImportError:
        raise UserError("workspaces need wandb-workspaces; pip install 'precis-suite[workspaces]'") from None
    pages = [workspace(dashboard, options.entity, options.project) for dashboard in dashboards]
    if has_report:
        pages.append(ablation_report(options.entity, options.project))
    for page in pages:
        print(page.save().url)
