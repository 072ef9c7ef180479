"""Files for training a LED over a BERT."""

from conftest import read_lines, write_lines

from experiments.studies.led_from_bert import data_files


def test_passages_are_of_other_articles_and_begin_with_their_summary(tmp_path, monkeypatch):
    sentences = [f"sentence {number} has as many words as the other ones ." for number in range(60)]
    text = "\n".join(["BACKGROUND", *sentences[:25], "RESULTS", *sentences[25:]])
    rows = [{"id": str(number), "document": text, "summary": "a summary ."} for number in range(6)]
    train, articles = write_lines(tmp_path / "train.jsonl", rows), write_lines(tmp_path / "articles.jsonl", rows[:4])
    for name, value in (("ARTICLES", 4), ("ARM_ARTICLES", 3), ("VAL_PASSAGES", 2)):
        monkeypatch.setattr(data_files, name, value)
    data_files.main(["articles", str(train), str(articles), f"--out={tmp_path}"])
    parts = {name: [row["id"] for row in read_lines(tmp_path / f"{name}.jsonl")] for name in ("arms", "val", "first")}
    assert parts == {"arms": ["0", "1", "2"], "val": ["3"], "first": ["4", "5"]}
    passages = read_lines(tmp_path / "passages.jsonl") + read_lines(tmp_path / "passages_val.jsonl")
    assert len(passages) == 2 * (60 // 8) and len({row["id"] for row in passages}) == len(passages)
    for row in passages:
        assert row["id"].split("-")[0] in ("4", "5") and row["summary"] in sentences
        start = sentences.index(row["summary"])
        assert row["document"] == " ".join(sentences[start : start + 8]), "eight sentences are the first 80 words"
