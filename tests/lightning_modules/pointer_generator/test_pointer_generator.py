import pytest
import torch

from datamodules.pointer_generator import PointerGeneratorBatch
from datamodules.text.vocabulary import PAD, START, STOP, UNK, Vocabulary
from lightning_modules.copying_summarizer import EmbeddingOptions
from lightning_modules.decoding.beam_search import beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.pointer_generator.module import PointerGenerator
from lightning_modules.summarizer import Samples, evaluating

V, WORDS = 14, 8  # the output layer has two rows more than the vocabulary has words


def build(seed=0, **arguments):
    torch.manual_seed(seed)
    model = PointerGenerator(V, EmbeddingOptions(5, 1e-4), 4, **arguments)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.7)
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(WORDS)]))
    return model.eval()


def make_batch(seed=0, documents=4, words=7, target=5):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high, *shape: torch.randint(low, high, shape, generator=generator)  # noqa: E731
    lengths = draw(3, words + 1, documents)
    lengths[0] = words
    source = draw(4, 4 + WORDS, documents, words)
    oov_words = []
    for row, length in zip(source, lengths.tolist()):  # a word that the vocabulary lacks, twice; padding behind
        row[1] = row[length - 1] = V
        row[length:] = PAD
        oov_words.append(["zebra"])
    targets = draw(4, 4 + WORDS, documents, target)
    targets[:, 1], targets[:, 2], targets[:, -1] = V, UNK, STOP
    targets[-1, -2:] = torch.tensor([STOP, PAD])
    inputs = torch.cat([torch.full((documents, 1), START), targets[:, :-1]], 1)
    return PointerGeneratorBatch(
        ids=[str(i) for i in range(documents)],
        references=[[["w1 w2"]]] * documents,
        source=source.masked_fill(source >= V, UNK),
        source_extended=source,
        lengths=lengths,
        target_input=inputs.masked_fill(inputs >= V, UNK),
        target=targets,
        target_lengths=(targets != PAD).sum(1),
        target_rows=(targets != PAD).flatten().nonzero().squeeze(1),
        oov_words=oov_words,
    )


def naive_terms(model, batch):
    """The loss through the whole [B, T, V + OOV] distribution: softmax, pad, scatter, gather, log."""
    decoded = model.network(batch.source, batch.lengths, batch.target_input.unsqueeze(1), model.coverage_gate)
    logits = model.network.output(decoded.features.squeeze(1))                       # [B, T, V]
    mixture = torch.nn.functional.pad(logits.softmax(-1), (0, 1))
    if decoded.gate is not None:
        p_gen = decoded.gate.squeeze(1).sigmoid().unsqueeze(-1)
        index = batch.source_extended.unsqueeze(1).expand(-1, logits.shape[1], -1)
        mixture = (p_gen * mixture).scatter_add(-1, index, (1 - p_gen) * decoded.attention.squeeze(1))
        gold = batch.target
    else:
        gold = batch.target.masked_fill(batch.target >= V, UNK)
    real = batch.target != PAD
    nll = -mixture.gather(-1, gold.unsqueeze(-1)).squeeze(-1).log().masked_fill(~real, 0)
    terms = {"nll": (nll.sum(1) / real.sum(1)).mean()}
    if model.network.attention.coverage is not None:
        overlap = decoded.overlap.squeeze(1).masked_fill(~real, 0)
        terms["coverage"] = (overlap.sum(1) / real.sum(1)).mean()
    return terms


@pytest.mark.parametrize("pointer", [True, False])
@pytest.mark.parametrize("coverage", [True, False])
def test_the_loss_equals_the_naive_one_gradients_included(pointer, coverage):
    model, batch = build(pointer=pointer, coverage=coverage), make_batch()
    parameters = [p for p in model.parameters() if p.requires_grad]
    ours, naive = model.loss_terms(batch), naive_terms(model, batch)
    assert ours.keys() == naive.keys() == ({"nll", "coverage"} if coverage else {"nll"})
    for name in ours:
        torch.testing.assert_close(ours[name], naive[name])
    gradients = [torch.autograd.grad(sum(terms.values()), parameters) for terms in (ours, naive)]
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def dense_search(model, batch, options):
    """Beam search over the whole extended distribution."""
    memory, start = model.network.encode(batch.source, batch.lengths)
    fixed = memory._asdict() | {"source": batch.source_extended, "oov_counts": torch.ones(batch.batch_size).long()}
    state = {name: tensor.squeeze(1) for name, tensor in start._asdict().items()}

    def step(tokens, state, memory, count):
        return model._step(tokens, state, memory, None)

    forbidden = (PAD, START) if options.allow_unknown else (PAD, UNK, START)
    return beam_search(step, state, fixed, torch.full((batch.batch_size,), START), STOP, options, forbidden, PAD)


@pytest.mark.parametrize("pointer", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"no_repeat_ngram": 2}, {"allow_unknown": True}, {"beam_size": 1}]
)
def test_search_over_candidates_equals_search_over_everything(pointer, options):
    options = DecodingOptions(**{"beam_size": 3, "min_length": 2, "max_length": 7} | options)
    for seed in range(4):
        model, batch = build(seed, pointer=pointer), make_batch(seed)
        ours = model.generate(batch, options)
        with torch.no_grad():
            dense = dense_search(model, batch, options)
        assert torch.equal(ours.tokens, dense.tokens)
        torch.testing.assert_close(ours.scores, dense.scores)
        assert (ours.tokens < 4 + WORDS).logical_or(ours.tokens >= V).all(), "rows without a word are never generated"
        if not options.allow_unknown:
            assert ours.tokens.ne(UNK).all()


def test_log_probs_equal_those_of_the_steps():
    model, batch = build(), make_batch()
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(V - 4)]))  # a word for every row of the output layer
    options = DecodingOptions(beam_size=3, min_length=0, max_length=6, sample=True)
    torch.manual_seed(3)
    drawn = model.generate(batch, options)
    scored = model.log_probs(batch, Samples(drawn.tokens, drawn.lengths))
    assert scored.requires_grad and scored.masked_select(drawn.tokens == PAD).eq(0).all()
    memory, start = model.network.encode(batch.source, batch.lengths)
    fixed = memory._asdict() | {"source": batch.source_extended, "oov_counts": torch.ones(batch.batch_size).long()}
    for k in range(3):
        state, last = start._asdict(), torch.full((batch.batch_size, 1), START)
        for t in range(drawn.tokens.shape[-1]):
            _, log_probs, state = model._step(last, state, fixed, None)
            last = drawn.tokens[:, k, t : t + 1]
            expected = log_probs.squeeze(1).gather(-1, last).squeeze(1)
            torch.testing.assert_close(scored[:, k, t], expected.masked_fill(last.squeeze(1) == PAD, 0))


def test_no_temperature_draws_a_word_that_a_document_does_not_have():
    model, batch = build(), make_batch()
    batch.source_extended[0, 2:4] = torch.tensor([V + 1, V + 2])  # the first document has three words of its own
    options = DecodingOptions(beam_size=200, min_length=3, max_length=6, sample=True, temperature=1e6)
    torch.manual_seed(0)
    drawn = model.generate(batch, options).tokens
    for row, tokens in enumerate(drawn):
        own = {word for word in batch.source_extended[row].tolist() if word >= V}
        assert set(tokens.flatten().tolist()) == {PAD, STOP, *range(4, 4 + WORDS), *own}


def test_copied_words_come_out_as_the_document_s_words_and_are_marked():
    model, batch = build(), make_batch()
    model.decoding = DecodingOptions(beam_size=2, min_length=2, max_length=6)
    with torch.no_grad():  # the gate says copy, attention goes to the second position, which holds a new word
        model.network.pointer.weight.zero_()
        model.network.pointer.bias.fill_(-30)
    summaries = model.summarize(batch)
    assert all(all(summary.copied) for summary in summaries)
    words = {w for s in summaries for w in s.words}
    assert words <= {f"w{i}" for i in range(WORDS)} | {"zebra"}
    with torch.no_grad():
        model.network.pointer.bias.fill_(30)
    summaries = model.summarize(batch)
    assert not any(any(summary.copied) for summary in summaries)
    assert "zebra" not in {w for s in summaries for w in s.words}


def test_generation_leaves_the_mode_as_it_was():
    model, batch = build(), make_batch()
    model.train()
    model.generate(batch, DecodingOptions(beam_size=1, min_length=0, max_length=3))
    assert model.training
    with pytest.raises(RuntimeError, match="stop here"), evaluating(model):
        assert not model.training and not torch.is_grad_enabled()
        raise RuntimeError("stop here")
    assert model.training and torch.is_grad_enabled()
