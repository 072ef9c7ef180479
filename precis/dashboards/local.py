"""`precis dashboard`: run folders in the browser, live while they train, with Trackio on this machine."""

import io
import os
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from jsonargparse import ArgumentParser
from jsonargparse.typing import PositiveFloat

from datamodules.documents import UserError
from precis.dashboards.run_feed import News, RunFeed, config_columns, find_run_folders

PROJECT = "precis"


def dashboard(arguments: list[str]) -> None:
    """`precis dashboard FOLDER ...`: show run folders in the browser, live while they train.

    The page is served on this machine alone and sends nothing anywhere. Run folders are only read. Ctrl-C ends it."""
    parser = ArgumentParser(prog="precis dashboard", description=dashboard.__doc__, exit_on_error=False)
    parser.add_argument("folders", type=Path, nargs="+", help="run folders, sweep folders, or a folder that has them")
    parser.add_argument("--port", type=int, default=7860, help="port of the page")
    parser.add_argument("--interval", type=PositiveFloat, default=5.0, help="seconds between two looks at the folders")
    parser.add_argument("--open", type=bool, default=True, help="open the page in the default browser")
    options = parser.parse_args(arguments)
    folders = options.folders
    if not find_run_folders(folders):
        raise UserError(f"{folders[0]}: no run folder in it; `precis fit --run_dir {folders[0]}/NAME` makes one")
    with serve(folders, options.port, options.interval) as address:
        print(f"{address} (Ctrl-C ends it)", flush=True)
        if options.open:
            webbrowser.open(address)
        threading.Event().wait()


@contextmanager
def serve(paths: Sequence[Path], port: int, interval: float = 5.0) -> Iterator[str]:
    """Serve the dashboard of all run folders in folders, and yield its address.

    Trackio's database is a temporary one, since the run folders have everything.

    Args:
        paths: run folders, or folders that have them; runs that are added later are shown too.
        port: port on 127.0.0.1.
        interval: seconds between two looks at the folders.

    Raises:
        UserError: if Trackio is not installed, or the port is taken.
    """
    with tempfile.TemporaryDirectory(prefix="precis-dashboard-") as database:
        tracker = load_trackio(Path(database))
        shown = Dashboard(tracker, paths)
        shown.update()
        try:
            with redirect_stdout(io.StringIO()):  # it prints an address with the right to change runs
                server, address, *_ = tracker.show(
                    project=PROJECT, open_browser=False, block_thread=False, host="127.0.0.1", share=False,
                    server_port=port,
                )  # fmt: skip
        except (OSError, OverflowError):
            raise UserError(f"port {port} cannot be used; give another --port") from None
        ended = threading.Event()
        thread = threading.Thread(target=shown.follow, args=(ended, interval), daemon=True)
        thread.start()
        try:
            yield f"{address}?project={PROJECT}"
        finally:
            ended.set()
            thread.join()
            with redirect_stdout(io.StringIO()):
                server.close()


def load_trackio(database: Path) -> ModuleType:
    """Import Trackio with a database of its own, and without any server that the environment may name.

    Raises:
        UserError: if it is not installed.
    """
    for name in [name for name in os.environ if name.startswith("TRACKIO_")]:
        del os.environ[name]
    os.environ |= {"TRACKIO_DIR": str(database), "TRACKIO_CONFIG_PATH": str(database / "config.json")}
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        import trackio
    except ImportError:
        raise UserError("the dashboard needs Trackio; pip install 'precis-suite[dashboard]'") from None
    return trackio


class Dashboard:
    """Copies what is new in run folders to Trackio.

    Args:
        tracker: the module `trackio`.
        paths: folders with runs.
    """

    def __init__(self, tracker: ModuleType, paths: Sequence[Path]) -> None:
        self.tracker, self.paths = tracker, list(paths)
        self.feeds: dict[Path, RunFeed] = {}

    def follow(self, ended: threading.Event, interval: float) -> None:
        """Update until an event is set."""
        while not ended.wait(interval):
            self.update()

    def update(self) -> None:
        """Log the values, pictures and tables that have appeared in the run folders since the last call."""
        folders = find_run_folders([path for path in self.paths if path.is_dir()])
        columns = config_columns(folders)
        root = os.path.commonpath([str(folder.resolve().parent) for folder in folders]) if folders else ""
        for folder, config in columns.items():
            feed = self.feeds.setdefault(folder, RunFeed(folder))
            if news := feed.read():
                self._log(os.path.relpath(folder.resolve(), root), config, news, feed.last_step)

    def _log(self, name: str, config: dict[str, Any], news: News, last_step: int) -> None:
        tracker = self.tracker
        with redirect_stdout(io.StringIO()):
            if news.restarted:
                for run in [run for run in tracker.Api().runs(PROJECT) if run.name == name]:
                    run.delete()
            tracker.init(
                project=PROJECT, name=name, group=config["ablation"], config=config, resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
            for step, values in news.values:
                tracker.log(values, step=step)
            for step, picture, path in news.pictures:
                tracker.log({picture: tracker.Image(str(path))}, step=step)
            for table, (columns, rows) in news.tables.items():
                tracker.log({table: tracker.Table(columns=columns, data=rows)}, step=last_step)
            tracker.finish()
