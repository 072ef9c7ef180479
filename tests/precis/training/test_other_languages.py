"""Training in other languages: all families over Chinese texts, and the best checkpoint of a Russian one."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from cases import BY_NAME, Case
from conftest import write_lines
from made_up_treebank import write_encoder
from pytorch_lightning import seed_everything
from test_harness import Recorder, trainer_with

from callbacks import BestCheckpoint
from lightning_modules.extractive.zero_shot import ZeroShot

OPTIONS = {"agents-m7": {"sentence_ends": [".", "!", "?"]}}  # which stand for those of the language
WORDS = {
    "zh": (["水獭", "苍鹭", "獾", "猞猁"], ["守卫", "修理", "测量", "拜访"], ["磨坊", "港口", "果园", "塔楼"]),
    "ru": (["Выдра", "Цапля", "Рысь", "Куница"], ["красит", "чинит", "мерит", "ищет"], ["сад", "порт", "дом", "мост"]),
}
TEXTS = {
    "zh": ("{0}住在{2}旁边。每天早上{0}都{1}{2}。没有别人做这件事。", "每天早上{0}都{1}{2}。"),
    "ru": ("{0} живёт за рекой. Каждый день {0} {1} старый {2}. Шёл дождь.", "{0} {1} {2}."),
}


def corpus(folder: Path, language: str, sizes: dict[str, int]) -> dict[str, str]:
    files, rng = {}, random.Random(0)
    for split, size in sizes.items():
        rows = []
        for number in range(size):
            chosen = [rng.choice(words) for words in WORDS[language]]
            document, summary = (text.format(*chosen) for text in TEXTS[language])
            rows.append({"id": f"{split}-{number}", "document": document, "summary": summary})
        files[split] = str(write_lines(folder / f"{split}.jsonl", rows))
    return files


@pytest.mark.integration
@pytest.mark.parametrize("name", [
    "agents-m7", "graphsum", "pegasus", "gap-sentences", "pointer-coverage", "rstformer",
    "bertsum", "matchsum", "bertsum-abs",
])  # fmt: skip
def test_every_family_learns_and_writes_chinese(name, tmp_path):
    chinese = corpus(tmp_path, "zh", {"train": 6, "val": 3, "test": 3})
    characters = {*TEXTS["zh"][0]}.union(*("".join(words) for words in WORDS["zh"]))
    checkpoint = write_encoder(tmp_path / "bert", [" ".join(characters)])  # random, but it knows the characters
    pretrained = {"checkpoint": checkpoint} if name in ("bertsum", "matchsum", "bertsum-abs") else {}
    # pieces are as long as the checkpoint can read
    objects = {"scorer": ZeroShot(), "piece": 30} if name == "matchsum" else {}
    seed_everything(5, verbose=False)
    model = BY_NAME[name].build_model(**pretrained, **OPTIONS.get(name, {}))
    data = Case.build_data(BY_NAME[name], chinese, language="zh", **objects, **pretrained)
    trainer = trainer_with(max_steps=2)
    trainer.fit(model, data)
    assert trainer.callback_metrics["val/loss"].isfinite()
    summaries = [summary for batch in trainer.predict(model, data) for summary in batch]
    assert len(summaries) == 3 and model.language == "zh"
    assert all("rouge1" in summary.scores for summary in summaries)
    if name in ("agents-m7", "pointer-coverage"):  # whose vocabulary has whole characters
        assert all(" " not in summary.text for summary in summaries)
    if name in ("bertsum", "matchsum"):
        assert all(re.fullmatch("[^。]+。", sentence) for summary in summaries for sentence in summary.sentences)


def plain_rouge1(predicted: str, expected: str) -> float:
    words = [re.findall(r"\w+", text.lower()) for text in (predicted, expected)]
    shared = sum((Counter(words[0]) & Counter(words[1])).values())
    return 200 * shared / sum(map(len, words))


@pytest.mark.integration
def test_the_best_checkpoint_of_a_russian_run_is_the_best(tmp_path):
    """Scores of English words are all 0 here, so that the first checkpoint would stay the best one."""
    case = BY_NAME["pointer"]
    seed_everything(5, verbose=False)
    model = case.build_model(**case.overfit_args[0], val_summaries=8)
    data = case.build_data(corpus(tmp_path, "ru", {"train": 48, "val": 8}), vocab_size=150, language="ru")
    best = BestCheckpoint(tmp_path, filename="best", monitor="val/rouge1", mode="max", enable_version_counter=False)
    trainer = trainer_with(best, Recorder(tmp_path), max_epochs=15, check_val_every_n_epoch=3)
    trainer.fit(model, data)
    scores = {}
    for path in tmp_path.glob("validation*.ckpt"):
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["state_dict"])
        with torch.no_grad():
            summaries = [summary for batch in data.val_dataloader() for summary in model.eval().summarize(batch)]
        counted = [plain_rouge1(summary.text, summary.references[0][0]) for summary in summaries]
        scores[saved["global_step"]] = sum(counted) / len(counted)
    assert len(scores) == 5 and min(scores.values()) < 30 < 50 < max(scores.values()), scores
    assert float(trainer.callback_metrics["val/rouge1"]) == pytest.approx(scores[max(scores)], abs=1e-3)
    chosen = torch.load(best.best_model_path, weights_only=True)["global_step"]
    assert scores[chosen] == pytest.approx(max(scores.values()), abs=1e-3)
