"""Pre-training of the small encoder: targets, training, and weights that parser and segmenter start from."""

import random

import numpy as np
import pytest
import torch
from conftest import write_lines
from sklearn.decomposition import PCA
from tiny_models import write_bert

from datamodules.text.hashing import hashed_words
from experiments.studies.parser_training import small_encoder
from experiments.studies.parser_training.small_encoder import Student, Teacher, main, train
from lightning_modules.discourse_parser.encoders import TokenEncoderOptions
from lightning_modules.discourse_parser.parser import DiscourseParser
from lightning_modules.discourse_parser.segmenter import EduSegmenter

pytestmark = pytest.mark.integration

WORDS = ("the", "otter", "swam", "because", "rain", "fell", "and", "a", "heron", "slept", "while", "lynx", "cubs")


def passage(number: int, words: int = 40) -> str:
    return " ".join(random.Random(number).choices(WORDS, k=words))


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory):
    """A tiny BERT whose vocabulary has every word, so that a word is one subword."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "max_position_embeddings": 256}
    return write_bert(tmp_path_factory.mktemp("teacher"), WORDS, model_max_length=256, **sizes)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Targets of three numbers, as the tiny teacher has but 24, and few held-out passages."""
    monkeypatch.setattr(small_encoder, "TARGET", 3)
    monkeypatch.setattr(small_encoder, "HELD_OUT", 4)


def test_targets_are_principal_components_of_the_teacher_from_which_a_student_learns(teacher_folder):
    texts = [passage(number) for number in range(36)]
    teacher = Teacher(teacher_folder, [1, 2], texts)
    passages = teacher(texts)
    with torch.no_grad():
        framed = torch.tensor([[2, *teacher.subwords(text).ids, 3] for text in texts])  # [CLS], [SEP]
        states = teacher.encoder.model(framed, output_hidden_states=True).hidden_states
    vectors = torch.cat([states[1], states[2]], -1)[:, 1:-1].flatten(0, 1).double().numpy()
    components = PCA(3, svd_solver="full").fit_transform(vectors)
    components = components / components.std(0) ** 0.5
    expected = components / np.sqrt((components**2).mean())
    targets = torch.cat([row.targets for row in passages]).double().numpy()[:, ::-1]  # the largest last
    signs = np.sign((expected * targets).sum(0))
    assert np.allclose(targets, expected * signs, atol=0.05)  # bfloat16 where the processor has it
    for row, text in zip(passages, texts):
        assert row.words.tolist() == [list(features) for features in hashed_words(text)[1]]
    torch.manual_seed(0)
    student = Student(3).eval()
    before = student.loss(passages[:4]).item()
    train(student, passages, epochs=12)
    assert student.loss(passages[:4]).item() < 0.5 * before


def test_parsers_and_segmenters_start_from_the_weights(teacher_folder, tmp_path, capsys):
    texts = write_lines(tmp_path / "texts.jsonl", [{"document": passage(n, 400)} for n in (1, 2, 2, 3)])
    options = ["--teacher", teacher_folder, "--layers", "2", "--epochs", "1"]
    main([str(texts), "--out", str(tmp_path / "small"), *options])
    assert "weights of the small encoder, from 1,200 words" in capsys.readouterr().out  # each text once
    random_weights = EduSegmenter().encoder.state_dict()
    encoder = TokenEncoderOptions(start_from=tmp_path / "small")
    parser, segmenter = DiscourseParser(encoder, hidden_size=8, fit_size=2), EduSegmenter(encoder)
    parser.setup("fit")
    segmenter.setup("fit")
    for name, value in segmenter.encoder.state_dict().items():
        assert torch.equal(value, parser.encoder.state_dict()[name])
        assert not torch.equal(value, random_weights[name])
