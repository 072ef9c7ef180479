"""Self-critical training on two processes with batch size b is that on one with 2b."""

import socket
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cases import CASES
from pytorch_lightning import Trainer, seed_everything
from test_ddp import Recorder, close, wait_for

from callbacks import SelfCritical
from datamodules.pointer_generator import PointerGeneratorBatch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Samples

CASE = next(case for case in CASES if case.name == "pointer")
BATCH = 4
RUNS = [("greedy", "summary", 1), ("leave_one_out", "reward_to_go", 2)]  # baseline, credit, batches accumulated


def one(batch: PointerGeneratorBatch, index: int) -> PointerGeneratorBatch:
    """A document of a batch alone."""
    here, length = slice(index, index + 1), int(batch.lengths[index])
    return replace(
        batch,
        ids=batch.ids[here],
        references=batch.references[here],
        source=batch.source[here, :length],
        source_extended=batch.source_extended[here, :length],
        lengths=batch.lengths[here],
        oov_words=batch.oov_words[here],
    )


def by_document(model):
    """A model whose draws are a function of the document, not of the process and the batch that it is in."""
    draw = model.sample

    def sample(batch: PointerGeneratorBatch, options: DecodingOptions) -> Samples:
        made = []
        for index, name in enumerate(batch.ids):
            torch.manual_seed(zlib.crc32(name.encode()))
            made.append(draw(one(batch, index), options))
        return Samples(*(torch.cat(column) for column in zip(*made)))

    model.sample = sample
    return model


def train(files: dict[str, str], folder: Path, rank: int, world: int) -> None:
    """Losses, gradients and weights of every run, in a file."""
    results = []
    for baseline, credit, accumulate in RUNS:
        seed_everything(5, verbose=False)
        recorder, data = Recorder(), CASE.build_data(files, batch_size=BATCH // world)
        model = by_document(CASE.build_model(**CASE.repeatable))
        Trainer(
            accelerator="cpu",
            strategy="ddp" if world > 1 else "auto",
            devices=world,
            precision="64-true",
            max_steps=4,
            limit_val_batches=0,
            accumulate_grad_batches=accumulate,
            gradient_clip_val=2.0,
            callbacks=[SelfCritical(samples=3, baseline=baseline, credit=credit, gamma=0.9), recorder],
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
        ).fit(model, data)
        results.append((recorder.losses, recorder.gradients, model.state_dict()))
    torch.save(results, folder / f"{world}-{rank}.pt")


def process(files: dict[str, str], folder: Path, rank: int, world: int, port: int) -> None:
    """Target of a process."""
    import test_ddp

    test_ddp.run_all = train  # what it calls once the process knows of the others
    test_ddp.process(files, folder, rank, world, port)


@pytest.fixture(scope="module")
def results(server, corpus_files, tmp_path_factory):
    from test_self_critical_ddp import process as target  # by the name under which a new process finds it

    folder = tmp_path_factory.mktemp("self-critical")
    CASE.build_data(corpus_files).prepare_data()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    places = [(0, 2), (1, 2), (0, 1)]
    processes = [server.Process(target=target, args=(corpus_files, folder, *place, port)) for place in places]
    for started in processes:
        started.start()
    wait_for(processes, folder)
    return [torch.load(folder / f"{world}-{rank}.pt") for rank, world in places]


@pytest.mark.parametrize("run", range(len(RUNS)), ids=[f"{baseline}-{credit}" for baseline, credit, _ in RUNS])
def test_two_processes_equal_one(results, run):
    first, second, alone = (result[run] for result in results)
    assert len(alone[0]) == {1: 4, 2: 7}[RUNS[run][2]] and len(alone[1]) == 4  # an epoch has seven batches
    close([(a + b) / 2 for a, b in zip(first[0], second[0])], alone[0])
    assert first[0] != second[0]  # each rewards documents of its own
    for theirs, ours in zip(first[1], alone[1], strict=True):
        close(theirs, ours)
    for name, tensor in alone[2].items():
        close(first[2][name], tensor)
        assert torch.equal(first[2][name], second[2][name])
