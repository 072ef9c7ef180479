"""`precis parse` as a SLURM array: the tasks share the documents and write the same parses as one process."""

import sys

import torch
from conftest import write_lines

from datamodules.discourse.cache import ParseCache


def submit(slurm, folder, corpus, out) -> str:
    command = f"{sys.executable} -m precis.command_line.cli parse {corpus} --out {out} --parser small --accelerator cpu"
    log = folder / "log-%a.txt"
    slurm.ask("sbatch", "--array=3-4", "-n1", "-c1", f"--output={log}", f"--wrap={command}")
    slurm.wait_until_empty()
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("log-*.txt")))


def test_an_array_parses_what_one_process_parses(slurm, tmp_path, precis):
    texts = ["It rained all day. " * (n % 4) + f"Otter {n} swam, but heron {n} did not." for n in range(13)]
    corpus = write_lines(tmp_path / "corpus.jsonl", [{"id": str(n), "document": text} for n, text in enumerate(texts)])
    one, many = tmp_path / "one", tmp_path / "many"
    precis("parse", corpus, "--out", one, "--parser", "small", "--accelerator", "cpu").succeeded()

    said = submit(slurm, tmp_path, corpus, many)
    assert "7 documents parsed" in said and "6 documents parsed" in said, said
    alone, shared = ParseCache(one), ParseCache(many)
    keys = {key for shard in alone._shards.values() for key in shard.documents}
    assert len(alone) == len(shared) == 13 and shared.missing(keys) == [] and shared._broken == {}
    for key in keys:
        for name, a in vars(shared.get(key)).items():
            b = getattr(alone.get(key), name)
            if isinstance(a, torch.Tensor):  # batches differ, and so may the last bit of a probability in one byte
                torch.testing.assert_close(a.int(), b.int(), atol=int(name == "ldd"), rtol=0)
            else:
                assert a == b, name
    said = submit(slurm, tmp_path, corpus, many)  # once more there is nothing to do
    assert all(said.count(f"0 documents parsed, {number} were parsed before") == 1 for number in (6, 7))
