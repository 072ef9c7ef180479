import runpy
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "extractive.py"


def test_both_ways_of_labelling_agree_on_made_up_documents():
    found = runpy.run_path(str(BENCHMARK))
    documents = found["made_up"](3)
    assert [found["label"](document) for document in documents] == [found["slow_label"](d) for d in documents]
    assert all(len(document.sentences) == 30 and len(document.references[0]) == 4 for document in documents)
