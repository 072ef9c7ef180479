"""Two processes with batch size b, also with shared weights (`fsdp2`), are one with 2b: losses, gradients, scores."""

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
import torch
from cases import BY_NAME, CASES
from conftest import free_port, step_of
from pytorch_lightning import Callback, seed_everything
from quiet_trainer import quiet_trainer
from torch.distributed.tensor import DTensor

from callbacks import PredictionWriter, Previews
from datamodules.documents import UserError

pytestmark = pytest.mark.integration

ANNEALED = BY_NAME["pointer-coverage"]
# One model for each way of computing the loss: the other cases differ in their networks alone.
NAMES = ("agents-m7", "bertsum", "matchsum", "bertsum-abs", "graphsum", "pegasus", "pointer-coverage", "rstformer")
SHARDED = ("agents-m7", "bertsum", "hierarchical", "rstformer")
# A model, batches whose gradients are accumulated, and training documents. The last batch of an epoch of 23 has two for
# the first process and one for the second; that of 25 has one for the first and none for the second.
RUNS = {
    "ddp": [*((BY_NAME[name], 1, 23) for name in NAMES), (ANNEALED, 2, 25)],
    "fsdp2": [*((BY_NAME[name], 1, 23) for name in SHARDED), (ANNEALED, 2, 25)],
}
BATCH = 4  # of one process
PRECISION = "64-true"  # so that the two ways of adding up agree closely
LOG_EVERY = 2  # steps


class Recorder(Callback):
    """Losses of all batches, values of the steps that are logged, gradients, and reductions within training steps."""

    def __init__(self):
        self.losses, self.gradients, self.weights, self.logged = [], [], [], []
        self.reductions, self.training = 0, False
        self.reduce = torch.distributed.all_reduce

    def count(self, *arguments, **options):
        self.reductions += self.training
        return self.reduce(*arguments, **options)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.training, torch.distributed.all_reduce = True, self.count

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.training, torch.distributed.all_reduce = False, self.reduce
        self.losses.append(outputs["loss"].item())
        values = {name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("train/")}
        if trainer.global_step % LOG_EVERY == 0 and not trainer.fit_loop._should_accumulate():
            self.logged.append(values)
        self.weights.append(pl_module.loss_weights.get("coverage", 0.0))

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        gradients = [whole(p.grad).flatten().clone() for p in pl_module.parameters() if p.grad is not None]
        self.gradients.append(torch.cat(gradients))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def run_all(files: dict[str, str], folder: Path, rank: int, world: int, strategy: str) -> None:
    """Trains and evaluates every model in this process, and leaves what came of it in a file."""
    torch.set_num_threads(1)
    results = {}
    for case, accumulate, documents in RUNS[strategy]:
        seed_everything(5, verbose=False)
        model = case.build_model(**case.repeatable)
        data = case.build_data(files, batch_size=BATCH // world, eval_batch_size=6 // world, max_train=documents)
        recorder, model.summarize = Recorder(), Mock(side_effect=model.summarize)
        previews = [Previews(folder / f"previews-{world}-{rank}", documents=3, heat_maps=1)] if accumulate == 2 else []
        predictions = folder / f"{world}-{case.name}-{accumulate}.jsonl"
        trainer = quiet_trainer(
            *case.callbacks(), *previews, recorder, PredictionWriter(predictions),
            strategy=strategy if world > 1 else "auto", devices=world, precision=PRECISION, max_epochs=2,
            accumulate_grad_batches=accumulate, log_every_n_steps=LOG_EVERY, gradient_clip_val=2.0,
        )  # fmt: skip
        trainer.fit(model, data)
        results[case.name, accumulate] = {
            **{name: getattr(recorder, name) for name in ("losses", "logged", "reductions", "gradients")},
            "decoded": [call.args[0].ids for call in model.summarize.call_args_list],
            "coverage_weights": recorder.weights,
            "sharded": any(isinstance(tensor, DTensor) for tensor in model.state_dict().values()),
            "weights": {name: whole(tensor).clone() for name, tensor in model.state_dict().items()},
            "fit": {name: value.item() for name, value in trainer.callback_metrics.items()},
            "validate": trainer.validate(model, data, verbose=False)[0],
            "test": trainer.test(model, data, verbose=False)[0],
        }
    torch.save(results, folder / f"{world}-{rank}.pt")


def torchrun_variables(rank: int, world: int, port: int) -> dict[str, str]:
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    return {name: str(value) for name, value in told.items()}


def process(files: dict[str, str], folder: Path, rank: int, world: int, port: int, *strategy: str) -> None:
    """Target of a process: `run_all` as `torchrun` starts it, with an error's traceback in a file."""
    if world > 1:
        os.environ |= torchrun_variables(rank, world, port)
    try:
        run_all(files, folder, rank, world, *strategy)
    except BaseException:
        (folder / f"{world}-{rank}.error").write_text(traceback.format_exc(), encoding="utf-8")
        raise


def run_ranks(context, target, files: dict[str, str], folder: Path, ranks: list[tuple[int, int]], *more: str) -> None:
    """Run `process`, by the name under which a new process finds it, as some ranks of worlds; end all if one fails."""
    port, until = free_port(), time.monotonic() + 600
    processes = [context.Process(target=target, args=(files, folder, *rank, port, *more)) for rank in ranks]
    for p in processes:
        p.start()
    while any(p.exitcode is None for p in processes) and time.monotonic() < until:
        if any(p.exitcode for p in processes):
            break
        time.sleep(0.05)
    codes = [p.exitcode for p in processes]
    for p in processes:
        p.kill()
        p.join()
    errors = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.error")))
    assert codes == [0] * len(processes), f"exit codes {codes}\n{errors}"


def run_on_one_and_two(context, target, files: dict[str, str], folder: Path, *more: str) -> list[dict]:
    """Return the results of the first and second of two processes, and of a single one."""
    ranks = [(0, 2), (1, 2), (0, 1)]
    run_ranks(context, target, files, folder, ranks, *more)
    return [torch.load(folder / f"{world}-{rank}.pt") for rank, world in ranks]


def results_of(strategy: str):
    @pytest.fixture(scope="module")
    def results(server, corpus_files, tmp_path_factory):
        """Return the results of both ranks of two processes and of one process, and the folder of their predictions."""
        from test_ddp import process as target  # by the name under which a new process finds it

        folder = tmp_path_factory.mktemp(strategy)
        for case, _, documents in RUNS[strategy]:
            case.build_data(corpus_files, max_train=documents).prepare_data()
        return *run_on_one_and_two(server, target, corpus_files, folder, strategy), folder

    return results


results, sharded_results = results_of("ddp"), results_of("fsdp2")


def every_run(strategy: str):
    keys = [(case.name, accumulate) for case, accumulate, _ in RUNS[strategy]]
    return pytest.mark.parametrize("key", keys, ids=lambda key: f"{key[0]}-{key[1]}")


def assert_equals_one_process(first: dict, second: dict, one: dict) -> None:
    """Check what two processes trained against one process with twice the batch size."""
    losses = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    torch.testing.assert_close(losses, one["losses"], rtol=1e-7, atol=1e-10)
    assert first["losses"] != second["losses"]  # each has documents of its own
    torch.testing.assert_close(first["gradients"], one["gradients"], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(first["weights"], one["weights"], rtol=1e-7, atol=1e-10)
    torch.testing.assert_close(first["weights"], second["weights"], rtol=0, atol=0)


@every_run("ddp")
def test_training_on_two_processes_equals_one_and_logs_means_which_are_reduced_at_once(results, key):
    first, second, one = (result[key] for result in results[:3])
    assert len(one["losses"]) == {1: 12, 2: 14}[key[1]] and len(one["gradients"]) == {1: 12, 2: 8}[key[1]]
    assert_equals_one_process(first, second, one)
    assert "train/loss" in one["logged"][0] and first["logged"] == second["logged"]
    assert len(one["logged"]) == {1: 6, 2: 4}[key[1]]
    for ours, expected in zip(first["logged"], one["logged"], strict=True):
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-9)
    # the first batch, and every second of 12 or 8 steps; an epoch ends with one of those
    assert [result[key]["reductions"] for result in results[:3]] == [{1: 7, 2: 5}[key[1]]] * 2 + [0]
    if key[0] == ANNEALED.name:
        weights = first["coverage_weights"]
        assert first["coverage_weights"] == second["coverage_weights"] == one["coverage_weights"]
        assert weights[0] == 0 < weights[-1] and len(set(weights)) > 4


def test_previews_are_decoded_on_both_processes_and_written_by_the_first(results):
    folder = results[3]
    for result in results[:3]:
        previewed = [ids for ids in result[ANNEALED.name, 2]["decoded"] if ids == ["doc-26", "doc-27", "doc-28"]]
        assert len(previewed) == 2  # one for each epoch's validation
    maps = {name: len(list((folder / f"previews-{name}").rglob("*.png"))) for name in ("2-0", "2-1", "1-0")}
    assert maps == {"2-0": 2, "2-1": 0, "1-0": 2}


@every_run("ddp")
def test_evaluation_and_predictions_of_an_odd_number_of_documents_equal_those_of_one_process(results, key):
    first, second, one = (result[key] for result in results[:3])
    for stage, prefix in (("validate", "val"), ("test", "test")):
        assert {f"{prefix}/rouge1", f"{prefix}/length"} <= one[stage].keys()
        assert first[stage] == second[stage] == pytest.approx(one[stage], rel=1e-6)
    scores = {name: value for name, value in one["fit"].items() if name.startswith("val/")}
    assert {name: first["fit"][name] for name in scores} == pytest.approx(scores, rel=1e-6)
    folder = results[3]
    two, one = (folder / f"{world}-{key[0]}-{key[1]}.jsonl" for world in (2, 1))
    lines = one.read_text(encoding="utf-8").splitlines()
    assert two.read_text(encoding="utf-8").splitlines() == lines
    assert [json.loads(line)["id"] for line in lines] == [f"doc-{number}" for number in range(33, 40)]
    assert [path.name for path in folder.glob(".*")] == []


@every_run("fsdp2")
def test_sharded_training_and_evaluation_equal_one_process(sharded_results, key):
    first, second, one = (result[key] for result in sharded_results[:3])
    assert first["sharded"] and second["sharded"] and not one["sharded"]
    assert_equals_one_process(first, second, one)
    for part in ("fit", "validate", "test"):
        assert first[part] == second[part] == pytest.approx(one[part], rel=1e-6, abs=1e-9)


@pytest.fixture
def no_trace():
    """Leave neither a group of processes nor its address to later tests, whose processes would take the same port."""
    with patch.dict(os.environ):
        yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name, words", [("graphsum", "log_sigma cannot be sharded"), ("pegasus", "choose AdamW")])
def test_what_cannot_be_sharded_is_named(name, words, corpus_files, no_trace):
    trainer = quiet_trainer(strategy="fsdp2", devices=1, max_steps=1)
    with pytest.raises(UserError, match=f"fsdp2: .*{words}.*--trainer.strategy ddp"):
        trainer.fit(BY_NAME[name].build_model(), BY_NAME[name].build_data(corpus_files))


def test_fewer_documents_than_processes_are_refused(corpus_files):
    data = CASES[0].build_data(corpus_files, max_eval=1)
    data.prepare_data()
    data.trainer = type("TwoProcesses", (), {"world_size": 2, "global_rank": 1})
    with pytest.raises(UserError, match=r"val.* 1 document.* 2 processes"):
        data.val_dataloader()


def fit_on_two_processes(config: Path, folder: Path, **interrupt: int) -> tuple[subprocess.CompletedProcess, Path]:
    """Run `precis fit` on two processes, one of which gets a signal; return the run, which says how to continue."""
    command = [sys.executable, "-m", "precis.command_line.cli", "fit", f"--config={config}", "--data.batch_size=2"]
    command += ["--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.callbacks+=interrupting.Interrupt"]
    command += [f"--trainer.callbacks.{name}={value}" for name, value in interrupt.items()]
    tests = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    (run,) = (folder / "runs" / "pointergenerator").iterdir()
    assert f"continue with: precis fit --run runs/pointergenerator/{run.name} --trust\n" in done.stderr, done.stderr
    return done, run


@pytest.mark.parametrize("killed, status", [(0, -9), (1, 1)])
def test_if_one_process_is_killed_the_other_ends_with_a_message(killed, status, tiny_config, tmp_path):
    done, _ = fit_on_two_processes(tiny_config, tmp_path, number=9, batch=9, rank=killed)
    assert done.returncode == status
    message = f"process {1 - killed} of 2 stopped at step 9: the connection to another process is lost"
    assert message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_command_trains_on_two_processes_and_both_stop_at_a_signal_to_one(tiny_config, trained, tmp_path, precis):
    # rank 0 gets it, both stop at the end of the epoch
    done, run = fit_on_two_processes(tiny_config, tmp_path, number=15, batch=2)
    assert done.returncode == 143, done.stderr
    assert step_of(run / "checkpoints" / "last.ckpt") == 7
    # one process with the double batch goes on and comes to where it would have come alone
    alone = ["--trainer.devices=1", "--trainer.strategy=auto", "--data.batch_size=4"]
    precis("fit", "--run", run, *alone, "--trust").succeeded()
    ours, theirs = (torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in (run, trained))
    assert ours["global_step"] == theirs["global_step"] == 14
    torch.testing.assert_close(ours["state_dict"], theirs["state_dict"], rtol=1e-3, atol=1e-5)
