import pytest
import torch
from tiny_models import random_summarizer
from transformers import AutoConfig, AutoModel

from lightning_modules.networks.passages import Reader, ScratchEncoder, extend_positions, sections, windows

LENGTHS = [0, 1, 7, 8, 9, 40]


@pytest.mark.parametrize("room", [1, 3, 8])
def test_each_token_belongs_to_one_window_and_sections_are_what_lies_between_starts(room):
    owned = [[0] * length for length in LENGTHS]
    for passage in windows(LENGTHS, room):
        assert passage.size <= room and passage.start <= passage.first
        assert passage.last <= passage.start + passage.size <= LENGTHS[passage.document]
        for token in range(passage.first, passage.last):
            owned[passage.document][token] += 1
    assert all(count == 1 for document in owned for count in document)
    between = sections([7, 3, 0], [[0, 2, 6], [0], []])
    assert [(p.document, p.start, p.size) for p in between] == [(0, 0, 2), (0, 2, 4), (0, 6, 1), (1, 0, 3)]


@pytest.mark.parametrize("chunk", [1, 10, 1000])
def test_passages_are_read_as_if_each_were_alone(chunk):
    torch.manual_seed(0)
    model, ids = Reader(ScratchEncoder(20, 8, 2, 1, 0.0), 8, None, 2).eval(), torch.randint(1, 20, (2, 9))
    segments = torch.randint(0, 2, (2, 9))
    passages = sections([9, 5], [[0, 4], [0, 2, 3]])
    found = model.encode_passages(ids, passages, segments, chunk)
    for document, start, size, *_ in passages:
        at = slice(start, start + size)
        alone = model(ids[document, at][None], torch.ones(1, size).bool(), segments[document, at][None])[0]
        torch.testing.assert_close(found[document, at], alone, rtol=1e-4, atol=1e-5)
    assert found[1, 5:].eq(0).all()  # nobody's
    nothing = torch.zeros(1, 1).long()  # a document without a token
    assert model(nothing, nothing.bool()).isfinite().all() and model.encode_passages(nothing, []).eq(0).all()


@pytest.mark.parametrize("kind", ["bart", "pegasus", "led"])
def test_encoders_of_encoder_decoders_have_a_limit_and_ignore_padding(kind, tmp_path):
    random_summarizer(kind, 20, window=16).save_pretrained(tmp_path)
    reader, ids, mask = Reader.pretrained(str(tmp_path)).eval(), torch.randint(4, 20, (1, 16)), torch.arange(16) < 9
    assert reader.max_tokens == 16
    torch.testing.assert_close(reader(ids, mask[None])[:, :9], reader.model(input_ids=ids[:, :9]).last_hidden_state)


@pytest.mark.parametrize("kind, room", [("bert", 6), ("roberta", 4)])  # RoBERTa's positions start behind its padding
def test_positions_beyond_the_last_are_copies_of_it(kind, room):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                  intermediate_size=16, max_position_embeddings=6)  # fmt: skip
    model = AutoModel.from_config(config).eval()
    ids = torch.randint(2, 20, (1, room))
    with torch.no_grad():
        before = model(input_ids=ids).last_hidden_state
        extend_positions(model, 5)
        torch.testing.assert_close(model(input_ids=ids).last_hidden_state, before)
        table = model.embeddings.position_embeddings.weight
        assert len(table) == 11 and all(torch.equal(row, table[5]) for row in table[5:])
        assert model(input_ids=torch.randint(2, 20, (1, room + 5))).last_hidden_state.shape == (1, room + 5, 8)
    with pytest.raises(ValueError, match="no table of positions"):
        extend_positions(torch.nn.Linear(2, 2), 3)
