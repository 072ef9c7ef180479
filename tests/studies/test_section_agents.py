"""Study of agents over sections: parts, targets, matched messages, and the command."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from experiments.studies.section_agents.arms import Sizes, SwitchedMessages, branch_off, make_arm
from experiments.studies.section_agents.run import main
from experiments.studies.section_agents.sections import Corpus, beginnings, read_articles
from lightning_modules.communicating_agents.messages import MeanMessages

SIZES = Sizes(vocab_size=60, hidden_size=8, batch_size=2, steps=10)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return files of six and four made-up articles; the last one of each has no conclusions."""
    folder, paths = tmp_path_factory.mktemp("articles"), []
    for split, number in (("train", 6), ("val", 4)):
        paths.append(folder / f"{split}.jsonl.gz")
        with gzip.open(paths[-1], "wt") as file:
            for article in range(number):
                names = ("BACKGROUND", "RESULTS", "CONCLUSIONS")[: 2 if article == number - 1 else 3]
                text = "\n".join(f"{name}\n{name.lower()} of {split} article{article} ." for name in names)
                file.write(json.dumps({"id": f"{split}-{article}", "document": text, "long_abstract": text}) + "\n")
    return paths


def test_parts_are_the_beginnings_of_sections_and_incomplete_articles_are_left_out(files: list[Path]) -> None:
    text = "Title\nRESULTS AND DISCUSSION\nWe found it .\nagain .\nBackground\nIt was lost .\nConclusion\nGood ."
    headings = {"background", "results and discussion", "conclusion"}
    assert beginnings(text, headings, 4) == ["it was lost .", "we found it .", "good ."]
    articles = read_articles(files[0])
    assert [article.id for article in articles] == [f"train-{number}" for number in range(5)]
    assert articles[0].target == " ".join(articles[0].parts)


def test_messages_are_those_of_the_article_of_the_next_one_or_none() -> None:
    messages, last, mask = SwitchedMessages(), torch.randn(3, 2, 4), torch.ones(3, 2, dtype=torch.bool)
    own = MeanMessages()(last, mask)
    for mode, expected in (("own", own), ("other", own[[2, 0, 1]]), ("cut", torch.zeros(3, 2, 4))):
        messages.mode = mode
        torch.testing.assert_close(messages(last, mask), expected)


def test_a_branch_has_the_likelihoods_of_its_base_until_it_is_trained(files: list[Path]) -> None:
    corpus, device = Corpus(*map(read_articles, files), SIZES.vocab_size), torch.device("cpu")
    base, batch = make_arm("silent", SIZES, 1, device), corpus.batch(corpus.train[:2], 3)
    base.step(batch, 0.01, seed=5)
    joined = branch_off("joined", base, SIZES, 1, device)
    assert (base.mode, joined.mode) == (None, "own")
    for seed, equal in ((6, True), (7, False)):  # the first step gives the weights of messages a value
        losses = [arm.step(batch, 0.01, seed) for arm in (base, joined)]
        assert (losses[0] == pytest.approx(losses[1], abs=1e-6)) is equal


def test_the_command_writes_a_table_and_keeps_finished_seeds(files, tmp_path, capsys) -> None:
    arguments = [*map(str, files), "--out", str(tmp_path), "--seeds", "1", "2"]
    main([*arguments, *(part for name, value in vars(SIZES).items() for part in (f"--{name}", str(value)))])
    first = capsys.readouterr().out
    assert "joined | other | nll" in first and (tmp_path / "table.md").read_text() == first
    scores = json.loads((tmp_path / "seed-1.json").read_text())["end"]["silent"]
    assert len(scores["nll"]) == 3  # of four validation articles, one has no conclusions
    before = (tmp_path / "seed-1.json").stat().st_mtime_ns
    main(arguments)
    assert capsys.readouterr().out == first and (tmp_path / "seed-1.json").stat().st_mtime_ns == before
