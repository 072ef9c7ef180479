from itertools import pairwise

import pytest
import torch
from transformers import AutoConfig, AutoModel, BertConfig, BertModel

from lightning_modules.networks import text_encoder
from lightning_modules.networks.text_encoder import TextEncoder, plan_disjoint_windows, plan_windows


def bert() -> BertModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    return BertModel(BertConfig(vocab_size=50, max_position_embeddings=12, **sizes)).eval()


def encoder(**options) -> TextEncoder:
    return TextEncoder(bert(), ([1], [2]), **{"window": 10, "batch_size": 3} | options).eval()


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 12, 13, 29, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_every_token_is_as_central_as_can_be(length, size):
    starts, width, window = plan_windows(length, size)
    assert width == min(size, length) and len(window) == length
    assert all(0 <= start <= length - width for start in starts.tolist())
    for token, chosen in enumerate(window.tolist()):
        room = {i: min(token - s, s + width - 1 - token) for i, s in enumerate(starts.tolist())}
        assert room[chosen] == max(room.values()) >= 0
    if length > size >= 4:
        inner = [t for t in range(length) if size // 4 <= t < length - size // 4]
        assert all(min(t - starts[window[t]], starts[window[t]] + size - 1 - t) >= size // 4 - 1 for t in inner)


@torch.no_grad()
def test_a_short_text_is_what_the_model_says_and_long_ones_equal_one_window_at_a_time():
    states = bert()(torch.tensor([[1, 7, 30, 12, 9, 2]]), output_hidden_states=True).hidden_states
    short = encoder(layers=(0, 2))([torch.tensor([7, 30, 12, 9])])[0]
    torch.testing.assert_close(short, torch.cat([states[0], states[2]], -1)[0, 1:-1])
    torch.manual_seed(1)
    documents = [torch.randint(3, 50, (length,)) for length in (31, 5, 0, 8, 9, 1)]
    layer, model = encoder(), bert()
    for document, got in zip(documents, layer(documents)):
        assert got.shape == (len(document), 8)
        plan = plan_windows(len(document), 8)
        for token, window in enumerate(plan.window.tolist()):
            start = plan.starts[window].item()
            ids = torch.cat([torch.tensor([1]), document[start : start + plan.size], torch.tensor([2])])
            torch.testing.assert_close(got[token], model(ids[None]).last_hidden_state[0, 1 + token - start])


@pytest.mark.parametrize("length", [0, 1, 8, 9, 12, 29, 64])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_disjoint_windows_cover_each_token_once(length, size):
    torch.manual_seed(0)
    plans = [plan_disjoint_windows(length, size) for _ in range(20)]
    for starts, width, window in plans:
        bounds = [*starts.tolist(), length]
        expected = [i for i, (start, end) in enumerate(pairwise(bounds)) for _ in range(start, end)]
        assert window.tolist() == expected and width <= size
        assert all(0 < end - start <= size for start, end in pairwise(bounds)) or not length
    if length > size > 2:
        assert len({plan.starts[1].item() for plan in plans}) > 1  # boundaries move


def test_windows_are_disjoint_only_in_training():
    torch.manual_seed(0)
    layer, text = encoder(frozen=False, disjoint=True), torch.randint(3, 50, (31,))
    layer.set_dropout(0.0)
    torch.testing.assert_close(layer([text])[0], encoder()([text])[0])
    assert len(layer.plan(31).starts) == 7
    layer.train()
    state = torch.get_rng_state()
    starts = [*layer.plan(31).starts.tolist(), 31]
    torch.set_rng_state(state)
    (vectors,) = layer([text])
    for start, end in pairwise(starts):
        # the first window reads on to its full size
        window = text[start : start + 8]
        expected = bert()(torch.cat([torch.tensor([1]), window, torch.tensor([2])])[None]).last_hidden_state[0]
        torch.testing.assert_close(vectors[start:end], expected[1 : 1 + end - start])


def test_a_model_or_its_lowest_layers_can_be_frozen_and_what_cannot_be_is_refused():
    frozen, layer, text = encoder().train(), encoder(frozen=False).train(), torch.arange(3, 20)
    assert not frozen([text])[0].requires_grad and not [p for p in frozen.parameters() if p.requires_grad]
    torch.testing.assert_close(frozen([text])[0], frozen([text])[0])  # no dropout
    layer.freeze_lowest(1)
    trained = {name for name, parameter in layer.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, _ in layer.named_parameters() if name.startswith("model.encoder.layer.1.")}
    layer([text])[0].sum().backward()
    for count in (0, 3):
        with pytest.raises(ValueError, match="the encoder has 2 layers"):
            layer.freeze_lowest(count)
    for options, message in [
        ({"layers": (3,)}, "0 to 2"), ({"layers": ()}, "0 to 2"), ({"window": 13}, "12 tokens"),
        ({"window": 2}, "room for a token"), ({"batch_size": 0}, "batch of one"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            encoder(**options)


@pytest.mark.parametrize("family", ["roberta", "mpnet", "xmod"])
def test_the_last_position_of_models_whose_positions_follow_the_padding_id(family):
    config = AutoConfig.for_model(
        family, vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=14, pad_token_id=1,
    )  # fmt: skip
    if family == "xmod":
        config.default_language = "en_XX"
    model = AutoModel.from_config(config)
    assert text_encoder.max_positions(config) == 12
    layer = TextEncoder(model, ([0], [2]), window=12, pad_id=1)
    assert layer([torch.randint(3, 50, (30,))])[0].shape == (30, 8)  # the last position exists
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, 13), 3))  # and there is none after it
    with pytest.raises(ValueError, match="reads 12 tokens"):
        TextEncoder(model, ([0], [2]), window=13)


def small(**options) -> text_encoder.SmallEncoder:
    torch.manual_seed(2)
    sizes = {"hidden_size": 5, "window": 6, "dropout": 0.0, "word_dropout": 0.0}
    return text_encoder.SmallEncoder(((1, 11, 4), (2, 7, 3)), **sizes | options)


def test_the_small_encoder_equals_a_plain_loop_and_reads_texts_of_any_length():
    layer = small()
    features, words = torch.randint(0, 2**32, (6, 3)), []
    for word, *affixes in features.tolist():
        whole, parts = layer.tables[0].weight[word % 11], sum(layer.tables[1].weight[a % 7] for a in affixes)
        words.append(torch.cat([whole, parts]))
    torch.testing.assert_close(layer([features])[0], layer.lstm(torch.stack(words)[None])[0][0])
    layer = small(batch_size=2).eval()
    documents = [torch.randint(0, 2**32, (length, 3)) for length in (0, 1, 6, 7, 25)]
    together = layer(documents)
    for document, states in zip(documents, together):
        assert states.shape == (len(document), layer.size)
        torch.testing.assert_close(states, layer([document])[0])
    assert together[4][12:18].ne(layer([documents[4][12:18]])[0]).any()  # context of a window, not of a part of one
