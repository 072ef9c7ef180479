"""What the tests of baselines share: documents, and the options that name them."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def documents(corpus_files) -> list[dict]:
    lines = Path(corpus_files["test"]).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def source(corpus_files) -> list[str]:
    return ["--corpus", "Files", f"--corpus.test={corpus_files['test']}"]
