"""Files for training a LED over a BERT: parts of news, passages of articles."""

import json

from experiments.studies.led_from_bert import data_files


def written(folder, name):
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_passages_are_of_other_articles_and_begin_with_their_summary(tmp_path, monkeypatch):
    sentences = [f"sentence {number} has as many words as the other ones ." for number in range(60)]
    text = "\n".join(["BACKGROUND", *sentences[:25], "RESULTS", *sentences[25:]])
    rows = [{"id": str(number), "document": text, "summary": "a summary ."} for number in range(6)]
    for name, part in (("train", rows), ("articles", rows[:4])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    for name, value in (("ARTICLES", 4), ("ARM_ARTICLES", 3), ("VAL_PASSAGES", 2)):
        monkeypatch.setattr(data_files, name, value)
    data_files.main(["articles", str(tmp_path / "train.jsonl"), str(tmp_path / "articles.jsonl"), f"--out={tmp_path}"])
    parts = {name: [row["id"] for row in written(tmp_path, name)] for name in ("arms", "val", "first")}
    assert parts == {"arms": ["0", "1", "2"], "val": ["3"], "first": ["4", "5"]}
    passages = written(tmp_path, "passages") + written(tmp_path, "passages_val")
    assert len(passages) == 2 * (60 // 8) and len({row["id"] for row in passages}) == len(passages)
    for row in passages:
        assert row["id"].split("-")[0] in ("4", "5") and row["summary"] in sentences
        start = sentences.index(row["summary"])
        assert row["document"] == " ".join(sentences[start : start + 8]), "eight sentences are the first 80 words"


def test_news_is_cut_at_the_last_sentence_end_within_the_first_words(tmp_path, monkeypatch):
    texts = {"short": "a b .", "long": "w " * 59 + ". " + "w " * 70, "early": "w " * 9 + ". " + "w " * 120}
    path = tmp_path / "news.jsonl"
    rows = [{"id": id, "document": text, "summary": "s"} for id, text in texts.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(data_files, "FIRST_NEWS", 1)
    data_files.main(["news", str(path), str(path), "--out", str(tmp_path)])
    rows = written(tmp_path, "first") + written(tmp_path, "arms")
    assert sorted(row["id"] for row in rows) == sorted(texts) == sorted(row["id"] for row in written(tmp_path, "val"))
    assert {row["id"]: len(row["document"].split()) for row in rows} == {"short": 3, "long": 60, "early": 100}
