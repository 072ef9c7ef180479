import pytest
import torch
from copying_models import AGENTS, POINTER_GENERATORS, SENTENCE_END, WORDS, V, build, make_batch, naive_terms

from datamodules.text.vocabulary import PAD, START, STOP, UNK
from lightning_modules.decoding.beam_search import beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Samples, evaluating


@pytest.mark.parametrize("name", [*POINTER_GENERATORS, *AGENTS])
def test_the_loss_equals_the_naive_one_gradients_included(name):
    model, batch = build(name), make_batch(name)
    batch.target[0, [0, 3, 4]] = batch.target[1, [3, 4]] = batch.target[2, 0] = SENTENCE_END  # three, two and one
    ours, naive = model.loss_terms(batch), naive_terms(model, batch)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert ours.keys() == naive.keys() and all(term != 0 for term in ours.values())
    torch.testing.assert_close(ours, naive)
    gradients = (torch.autograd.grad(sum(terms.values()), parameters) for terms in (ours, naive))
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def dense_search(model, batch, options):
    memory, start = model.network.encode(batch.source, batch.lengths)
    memory = memory._asdict() | {"source": batch.source_extended.flatten(1)}
    state = {name: tensor.squeeze(1) for name, tensor in start._asdict().items()}
    step = lambda tokens, state, memory, count: model._step((), tokens, state, memory, None)  # noqa: E731
    forbidden = (PAD, START) if options.allow_unknown else (PAD, UNK, START)
    return beam_search(step, state, memory, torch.full((3,), START), STOP, options, forbidden, PAD)


@pytest.mark.parametrize("name", ["pointer-coverage", "seq2seq-coverage", "m5"])
@pytest.mark.parametrize("options", [{}, {"no_repeat_ngram": 2}, {"allow_unknown": True}, {"beam_size": 1}])
def test_search_over_candidates_equals_search_over_everything(name, options):
    options = DecodingOptions(**{"beam_size": 3, "min_length": 2, "max_length": 7} | options)
    for seed in range(4):
        model, batch = build(name, seed), make_batch(name, seed)
        ours = model.generate(batch, options)
        with torch.no_grad():
            dense = dense_search(model, batch, options)
        assert torch.equal(ours.tokens, dense.tokens)
        torch.testing.assert_close(ours.scores, dense.scores)
        assert (ours.tokens < 4 + WORDS).logical_or(ours.tokens >= V).all(), "rows without a word are never generated"
        if not options.allow_unknown:
            assert ours.tokens.ne(UNK).all()


def test_no_temperature_draws_a_word_that_a_document_does_not_have():
    model, batch = build("pointer"), make_batch("pointer")
    batch.source_extended[0, 3:5] = torch.tensor([V + 1, V + 2])  # the first document has three words of its own
    options = DecodingOptions(beam_size=200, min_length=3, max_length=6, sample=True, temperature=1e6)
    torch.manual_seed(0)
    for row, tokens in enumerate(model.generate(batch, options).tokens):
        oov = {word for word in batch.source_extended[row].tolist() if word >= V}
        assert set(tokens.flatten().tolist()) == {PAD, STOP, *range(4, 4 + WORDS), *oov}


@pytest.mark.parametrize("min_length", [0, 2, 9])
@pytest.mark.parametrize("name", POINTER_GENERATORS)
def test_log_probs_kept_from_sampling_equal_those_of_a_second_pass_gradients_included(name, min_length):
    model, batch = build(name, dropout=0.5).double().train(), make_batch(name)
    options = DecodingOptions(beam_size=4, min_length=min_length, max_length=12, sample=True)
    torch.manual_seed(3)
    samples, log_probs = model.sample_with_log_probs(batch, options)
    assert model.training
    torch.manual_seed(3)
    assert torch.equal(model.sample(batch, options).tokens[..., : log_probs.shape[-1]], samples.tokens)
    expected = model.eval().log_probs(batch, samples, options)
    torch.testing.assert_close(log_probs, expected, rtol=1e-10, atol=1e-10)
    weights, parameters = torch.rand_like(expected), [part for part in model.parameters() if part.requires_grad]
    sums = [(weights * values).sum() for values in (log_probs, expected)]
    gradients = [torch.autograd.grad(value, parameters, materialize_grads=True) for value in sums]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)
    assert all(part.any() for part in gradients[0][:2])
    for other in ({"no_repeat_ngram": 2}, {"temperature": 0.5}, {"greedy_first": True}):
        assert model.sample_with_log_probs(batch, DecodingOptions(max_length=99, sample=True, **other))[1] is None


@pytest.mark.parametrize("name", ["pointer-coverage", "m5"])
@pytest.mark.parametrize("copies", [True, False])
@torch.no_grad()
def test_words_of_any_part_are_copied_and_marked(name, copies):
    model = build(name)
    model.decoding = DecodingOptions(beam_size=2, min_length=3, max_length=6)
    gate = model.network.decoder.pointer_word if name == "m5" else model.network.pointer
    gate.weight.zero_()
    gate.bias.fill_(-60 if copies else 60)
    batch = make_batch(name)
    for summary, oov, ids in zip(model.summarize(batch), batch.oov_words, batch.source_extended.flatten(1).tolist()):
        assert summary.copied == [copies] * len(summary.words)
        copied = {f"w{i - 4}" for i in ids if 4 <= i < V} | set(oov)
        assert set(summary.words) <= (copied if copies else {f"w{i}" for i in range(WORDS)})


def test_texts_are_words_up_to_the_length_the_heat_map_shows_all_agents_and_the_mode_stays():
    model, batch = build("m7"), make_batch("m7")
    samples = Samples(batch.source_extended.flatten(1).unsqueeze(1), torch.full((3, 1), 15))
    texts = model.texts(batch, samples)
    assert [text.split()[0] for (text,) in texts] == ["zebra", "gnu", "oryx"] and "yak" in texts[0][0].split()
    shorter = model.texts(batch, Samples(samples.tokens, torch.ones(3, 1, dtype=torch.long)))
    assert shorter == [["zebra"], ["gnu"], ["oryx"]]
    assert torch.equal(model.source_ids(batch), samples.tokens.squeeze(1))
    model.decoding = DecodingOptions(beam_size=2, min_length=2, max_length=6)
    source, target, attention, total = model.attention_map(batch, 1)
    words = batch.source_extended[1].flatten().tolist()
    assert source == ["gnu", *(f"w{i - 4}" for i in words[1:5]), "eland", *(f"w{i - 4}" for i in words[6:9])]
    assert attention.shape == (len(target), 9) and total.shape == (9,)
    assert attention.sum(1) == pytest.approx([1] * len(target), abs=1e-5)
    model.train().generate(batch, DecodingOptions(beam_size=1, min_length=0, max_length=3))
    assert model.training, "the mode is as it was"
    with pytest.raises(RuntimeError, match="stop here"), evaluating(model):
        assert not model.training and not torch.is_grad_enabled()
        raise RuntimeError("stop here")
    assert model.training and torch.is_grad_enabled()
