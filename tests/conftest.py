"""What the tests share: a tiny corpus, a tiny run, and new processes that start quickly."""

import csv
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from hypothesis import HealthCheck, settings

with suppress(ImportError):
    # sets up logging anew, by which all handlers are closed: in the middle of a test those would be pytest's
    import submitit  # noqa: F401
# on a busy machine an example may take seconds, and so may drawing it
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
os.environ["HF_HUB_OFFLINE"] = "1"  # read when libraries are imported: nothing is downloaded
# one thread unless the environment says otherwise, here and in the processes that a test starts
torch.set_num_threads(int(os.environ.setdefault("OMP_NUM_THREADS", "1")))
# a shell lets what it starts in the background ignore Ctrl-C, and so would the processes that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)

ANIMALS = ["otter", "heron", "badger", "lynx", "marten", "stoat"]
DEEDS = ["guards", "paints", "repairs", "measures", "visits"]
PLACES = ["mill", "harbour", "library", "orchard", "tower"]
NAMES = ["Quillon", "Brisbet", "Tamsel", "Vorrick", "Yandle", "Ospreta", "Fenwyn", "Jorlis"]
BROWSER_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --enable-logging=stderr --window-size=1250,2600"
)
QUIET = {"log_every_n_steps": 1, "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False}
SIZES = {"train": 26, "val": 7, "test": 7}  # odd where documents are dealt out to two processes
GUM = Path(__file__).resolve().parents[2] / "shared" / "data" / "gum"
needs_gum = pytest.mark.skipif(not GUM.is_dir(), reason="needs the GUM treebank in ../shared/data")


def made_up(number: int, rng: random.Random) -> dict[str, str]:
    """Return a document about an animal with a unique name, and its summary."""
    name = f"{rng.choice(NAMES)}{number}"
    animal, deed, place = rng.choice(ANIMALS), rng.choice(DEEDS), rng.choice(PLACES)
    text = f"{name} is a {animal} from the old {place}. Every morning {name} {deed} the {place} before the rain."
    more = " Nobody else does it." * rng.randrange(3)
    return {"id": f"doc-{number}", "document": text + more, "summary": f"the {animal} {name} {deed} the {place} ."}


def write(path: Path, content: str | dict) -> Path:
    """Write a text, or a dictionary as YAML, to a file; return the file."""
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def write_lines(path: Path, rows: list) -> Path:
    """A JSON Lines file; strings are written as they are."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def read_lines(path: Path | str) -> list[dict]:
    with Path(path).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_metrics(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_checkpoints(one: Path, other: Path, *names: str) -> None:
    """Check that checkpoints of two runs have the same steps and weights."""
    for name in names or ("last",):
        ours, theirs = (torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True) for run in (one, other))
        assert ours["global_step"] == theirs["global_step"], name
        torch.testing.assert_close(ours["state_dict"], theirs["state_dict"], rtol=0, atol=0)


def assert_same_run(one: Path, other: Path) -> None:
    """Check that two runs have logged the same, and that their last and best checkpoints are the same."""
    assert (one / "metrics.csv").read_text() == (other / "metrics.csv").read_text()
    assert_same_checkpoints(one, other, "last", "best")


def step_of(checkpoint: Path) -> int:
    return torch.load(checkpoint, weights_only=True)["global_step"]


def flip_a_byte(checkpoint: Path) -> None:
    """Damage the first weight of a checkpoint."""
    content = bytearray(checkpoint.read_bytes())
    weight = next(iter(torch.load(checkpoint, weights_only=True)["state_dict"].values()))
    content[content.index(weight.numpy().tobytes()) + 3] ^= 0x40
    checkpoint.write_bytes(content)


def change_config(path: Path, changes: dict[str, object], out: Path | None = None) -> Path:
    """Write a config with other values at dotted keys, to its own file or to another one; return that file."""
    from precis.files.nested_values import set_value

    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        set_value(config, key, value)
    return write(out or path, config)


def write_sweep(folder: Path, base: Path, **parts) -> Path:
    return write(folder / "sweep.yaml", {"base": str(base), **parts})


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_until(ready: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Wait until something is true, while a process is running; the limit is for what never comes, not a measure."""
    limit = time.monotonic() + 600
    while not ready():
        assert time.monotonic() < limit and (process is None or process.poll() is None), "it never came"
        time.sleep(0.05)


def write_corpus(folder: Path, sizes: dict[str, int] = SIZES) -> dict[str, str]:
    """Write files of made-up documents, by split."""
    files, rng, numbers = {}, random.Random(0), count()
    for split, size in sizes.items():
        rows = [made_up(number, rng) for number in islice(numbers, size)]
        files[split] = str(write_lines(folder / f"{split}.jsonl", rows))
    return files


def prepared(data, stage: str = "test"):
    """Return data that are prepared and set up for a stage."""
    data.prepare_data()
    data.setup(stage)
    return data


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory) -> Path:
    """Everything derived goes to a folder of this session; no one is logged in anywhere."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["PRECIS_CACHE"] = str(folder)
    os.environ["WANDB_MODE"] = "offline"
    os.environ["NETRC"] = str(folder / "no-netrc")
    os.environ["NO_PROXY"] = "127.0.0.1"
    for name in ("WANDB_API_KEY", "OPENAI_API_KEY", "PRECIS_DEBUG"):
        os.environ.pop(name, None)
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no GPU."""
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch.cuda.is_available() is False"))


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float64], ids=str)
def default_dtype(request):
    """The default dtype, as Lightning sets it during the steps of `bf16-true`, `16-true` and `64-true`."""
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def same_number_of_threads():
    """A test that leaves another number of threads would change the rounding of those after it."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before, "this test changes the number of threads of the process"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder that all tests of a module share."""
    return tmp_path_factory.mktemp("module")


@pytest.fixture(scope="session")
def corpus_files(tmp_path_factory) -> dict[str, str]:
    """Three files of made-up documents, by split."""
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def documents(corpus_files) -> list[dict]:
    """The records of the test split."""
    return read_lines(corpus_files["test"])


@pytest.fixture(scope="session")
def texts(documents) -> list[str]:
    return [row["document"] for row in documents]


@pytest.fixture(scope="session")
def source(corpus_files) -> list[str]:
    """Options that name these records, as of `precis baseline`."""
    return ["--corpus", "Files", f"--corpus.test={corpus_files['test']}"]


def pointer_generator_config(files: dict[str, str], size: int, **trainer: object) -> dict:
    """Return the config of a small pointer-generator that trains quietly."""
    model = {"vocab_size": 40, "embedding": {"size": size, "std": 0.1}, "hidden_size": size}
    model["decoding"] = {"beam_size": 2, "min_length": 2, "max_length": 8}
    data = {"corpus": {"class_path": "datamodules.corpora.Files", "init_args": files}}
    data |= {"max_source": 30, "max_target": 12, "batch_size": 4}
    return {
        "seed_everything": 3,
        "model": {"class_path": "lightning_modules.PointerGenerator", "init_args": model},
        "data": {"class_path": "datamodules.PointerGeneratorData", "init_args": data},
        "trainer": QUIET | trainer,
        "wandb": "off",
        "previews": 0,
    }


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory, corpus_files) -> Path:
    """A config that trains the pointer-generator for two epochs of seven steps."""
    config = pointer_generator_config(corpus_files, 12, max_epochs=2)
    return write(tmp_path_factory.mktemp("config") / "tiny.yaml", config)


@pytest.fixture(scope="session")
def browse(tmp_path_factory):
    """Show a page in Chromium or Chrome: `browse(path, "--dump-dom")`. Skips where there is none that can start."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no chromium or chrome on PATH to show the page in")
    profile = tmp_path_factory.mktemp("browser")

    def show(page: Path | str, *extra: str) -> subprocess.CompletedProcess:
        address = page.as_uri() if isinstance(page, Path) else page
        command = [browser, *BROWSER_FLAGS.split(), f"--user-data-dir={profile}", *extra, address]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)

    try:
        assert "<body>" in show("about:blank", "--dump-dom").stdout, "it shows nothing"
    except (OSError, subprocess.SubprocessError, AssertionError) as error:
        pytest.skip(f"{browser} cannot start here: {error}")
    return show


class Finished(NamedTuple):
    status: int
    out: str
    err: str

    def succeeded(self) -> "Finished":
        assert self.status == 0, self.err
        return self

    def refused(self, *words: str) -> None:
        """Check that the command failed with status 1, and said all this."""
        assert self.status == 1 and all(word in self.err for word in words), self

    def failed_in_one_line(self, *words: str, status: int | tuple[int, ...] = 1) -> None:
        """Check that the command failed with a status, or one of several, and printed one error that says all this."""
        assert self.status in (status if isinstance(status, tuple) else (status,)), self
        assert self.err.startswith("precis: error: ") and self.err.count("\n") == 1, self.err
        assert [word for word in words if word not in self.err] == [], self.err


def run_main(*arguments: object) -> int:
    """Run the command in this process, and return its exit status."""
    from precis.command_line.cli import main

    before = list(sys.argv)
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code
    finally:
        sys.argv = before


@pytest.fixture
def precis(capfd):
    """Run the command in this process: `precis("fit", "--config", path)`."""

    def run(*arguments: object) -> Finished:
        capfd.readouterr()
        return Finished(run_main(*arguments), *capfd.readouterr())

    return run


@pytest.fixture
def trusted(monkeypatch):
    """Configs may name the callbacks of the tests."""
    monkeypatch.setenv("PRECIS_TRUST", "1")


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_config) -> Path:
    """A run folder as `precis fit` leaves it. Read it, do not write to it: `run_folder` is a copy."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert run_main("fit", "--config", tiny_config, "--run_dir", folder, "--previews", 2) == 0
    return folder


@pytest.fixture(scope="session")
def extractive(tmp_path_factory, corpus_files) -> Path:
    """The run folder of a BertSum with random weights. Read it, do not write to it."""
    from run_folders import write_run

    return write_run(tmp_path_factory.mktemp("extractive") / "bertsum", "bertsum", corpus_files)


@pytest.fixture
def run_folder(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="session")
def server():
    """A context of `multiprocessing` whose processes are forked from one that has imported everything already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["precis.training.training", "lightning_modules.rstformer.module"])
    return context


@pytest.fixture
def in_a_process(server, tmp_path):
    """Run the command in a separate process; return its exit status (minus the signal that killed it) and output."""
    import interrupting

    def run(*arguments: object) -> tuple[int, str]:
        out = tmp_path / "output.txt"
        # by the name under which a new process finds it
        process = server.Process(target=interrupting.run_command, args=(list(map(str, arguments)), out))
        process.start()
        process.join(600)
        assert process.exitcode is not None
        return process.exitcode, out.read_text(encoding="utf-8")

    return run
