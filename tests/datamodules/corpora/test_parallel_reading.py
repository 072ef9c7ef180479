"""Pools of processes."""

import gc
import os

from datamodules.corpora.parallel import mapper


def test_workers_leave_the_garbage_of_the_parent_alone(tmp_path):
    parent, collected = os.getpid(), tmp_path / "collected"

    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            if os.getpid() != parent:
                collected.touch()

    gc.disable()
    try:
        Cycle()
        with mapper(2) as mapped:
            list(mapped(gc.collect, [2, 2]))
    finally:
        gc.enable()
    assert not collected.exists()
