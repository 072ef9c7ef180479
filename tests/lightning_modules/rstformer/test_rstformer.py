import re
from dataclasses import replace

import pytest
import torch
from conftest import prepared
from model_options import build_model, grouped
from quiet_trainer import quiet_trainer
from small_rstformer import SMALL, data_of, model_of, randomized, small_led
from transformers import AutoTokenizer, LEDForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from datamodules.documents import UserError
from datamodules.text.subword_tokenizer import SMALLEST, SubwordTokenizer
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from lightning_modules.rstformer.module import RSTformer

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated")


@pytest.fixture(scope="module")
def batch_and_text(corpus_files, folder):
    data = prepared(data_of(corpus_files, folder))
    return next(iter(data.test_dataloader())), data.tokenizer


@pytest.mark.parametrize("changes", [{"attention": "dense"}, {"attention": "chunked"}, {"lora_rank": 2}], ids=str)
def test_documents_whose_edus_are_all_cut_off_have_plain_attention(changes, batch_and_text):
    if "lora_rank" in changes:
        pytest.importorskip("peft", reason="needs the extra lora")
    batch, text = batch_and_text
    model = randomized(model_of(formula="product", **changes), text)
    batch = replace(batch, token_edu=torch.full_like(batch.token_edu, -1), ldd=torch.zeros_like(batch.ldd))

    def states(discourse):
        return model.network.encode(batch.source, batch.source_mask, batch.global_mask, discourse).last_hidden_state

    with torch.no_grad():
        ours = states(model.discourse(batch))
        if model.network.adapters is not None:
            assert model.network.adapters.gamma.eq(0).all()
        else:
            model.network.injections = torch.nn.ModuleList()
            torch.testing.assert_close(ours, states(None))


def test_an_export_is_a_led_of_transformers_and_a_checkpoint_of_ours(tmp_path, corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(formula="log_bias"), text)
    model.export(tmp_path / "led")
    led = LEDForConditionalGeneration.from_pretrained(tmp_path / "led").eval()
    names = model.network.led.state_dict()
    assert all(torch.equal(value, names[name]) for name, value in led.state_dict().items())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "led")
    for written in ("Tamsel7 is a lynx.", "naïve 😀"):
        assert tokenizer(written, add_special_tokens=False).input_ids == text(written)[0]
    again = build_model(RSTformer, SMALL | {"checkpoint": str(tmp_path / "led"), "ablation": "no_discourse"})
    changes = {"parser": None, "ablation": "no_discourse", "checkpoint": str(tmp_path / "led")}
    data = prepared(data_of(corpus_files, folder / "exported", **changes))
    again.eval().set_tokenizer(data.tokenizer)
    ours = next(iter(data.test_dataloader()))
    assert torch.equal(ours.source, batch.source)
    with torch.no_grad():
        logits = led(
            batch.source, attention_mask=batch.source_mask, global_attention_mask=batch.global_mask,
            decoder_input_ids=model.decoder_inputs(batch.target),
        ).logits  # fmt: skip
        nll = -logits.log_softmax(-1).gather(2, batch.target.unsqueeze(-1)).squeeze(-1)
        expected = torch.stack([row[:n].mean() for row, n in zip(nll, batch.target_lengths)]).mean()
        torch.testing.assert_close(again.loss_terms(ours)["nll"], expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="no tokenizer to export"):
        model_of().export(tmp_path / "other")


def test_discourse_continues_from_a_plain_led_and_not_the_other_way(batch_and_text):
    batch, text = batch_and_text
    plain = randomized(model_of(ablation="no_discourse"), text)
    saved = {"state_dict": plain.state_dict(), "text": text.state()}
    branch = model_of(formula="log_bias")
    branch.set_tokenizer(text)
    with pytest.raises(UserError, match="absent there"):  # as `precis test` would, of another run
        branch.on_load_checkpoint(saved)
    branch.on_load_checkpoint(saved | {"start": True})
    branch.load_state_dict(saved["state_dict"])
    with torch.no_grad():  # beta is 0: where the plain LED was
        ours, theirs = (model.eval().loss_terms(batch)["nll"] for model in (branch, plain))
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    learned = {"state_dict": model_of(formula="log_bias").state_dict()}
    with pytest.raises(UserError, match=r"network\.injections.* absent here"):
        plain.on_load_checkpoint(learned)


def test_initial_weights_have_the_deviation_that_is_asked_for_and_discourse_a_rate_of_its_own():
    for std in (0.02, 0.1):
        led = model_of(init_std=std).network.led
        assert led.led.encoder.layers[0].fc1.weight.std().item() == pytest.approx(std, rel=0.15)
        assert led.led.shared.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert led.lm_head.weight is led.led.shared.weight
    model = model_of(formula="log_bias", learn_weights=True, schedule="constant", lr=1e-3)
    led, own = model.configure_optimizers()["optimizer"].param_groups
    assert (led["lr"], own["lr"], own["weight_decay"]) == (1e-3, 1e-2, 0)
    assert {id(p) for p in own["params"]} == {id(p) for p in model.network.injections.parameters()}
    assert len(led["params"]) + len(own["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("changes", [
    {}, {"beam_size": 1}, {"alpha": 2.0}, {"length_penalty": "none"}, {"min_length": 9}, {"no_repeat_ngram": 2},
], ids=str)  # fmt: skip
def test_beam_search_finds_what_generate_finds(changes, batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(formula="log_bias"), text).double()
    options = DecodingOptions(**{"beam_size": 4, "min_length": 2, "max_length": 12} | changes)
    led, made = model.network.led, model.sample(batch, options)
    beams = {"num_beams": options.beam_size, "num_return_sequences": options.beam_size, "do_sample": False}
    if options.beam_size > 1:  # greedy search has neither penalty nor early stopping there
        beams |= {"early_stopping": True, "length_penalty": options.alpha * (options.length_penalty == "mean")}
    with torch.no_grad():
        states, mask = model.encode(batch)
        theirs = led.generate(
            encoder_outputs=BaseModelOutput(states), attention_mask=mask, max_new_tokens=options.max_length,
            min_new_tokens=options.min_length, no_repeat_ngram_size=options.no_repeat_ngram,
            suppress_tokens=list(model.forbidden(options)), **beams,
        )[:, 1:].unflatten(0, (-1, options.beam_size))  # fmt: skip
    width = theirs.shape[-1]
    assert torch.equal(made.tokens[..., :width], theirs) and made.tokens[..., width:].eq(text.pad).all()
    assert torch.equal(made.lengths, theirs.ne(text.pad).sum(-1))
    assert led.generation_config.forced_bos_token_id is led.generation_config.forced_eos_token_id is None


@pytest.mark.integration
def test_compiled_layers_change_nothing(batch_and_text, monkeypatch):
    batch, text = batch_and_text
    original, compiled, results, weights = torch.nn.Module.compile, [], [], None

    def without_code(module, **options):  # what is captured is run as it is: nothing is generated, which takes minutes
        compiled.append(module)
        original(module, backend="aot_eager", dynamic=True, **options)

    monkeypatch.setattr(torch.nn.Module, "compile", without_code)
    for compile_layers in (False, True):
        model = model_of(formula="log_bias", learn_weights=True, layers=1, compile_layers=compile_layers)
        model = randomized(model, text).train()
        model.load_state_dict(weights or model.state_dict())
        weights, loss = model.state_dict(), model.loss_terms(batch)["nll"]
        loss.backward()
        results.append((loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    assert len(compiled) == 2
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)


def test_rst_lora_trains_adapters_and_writes(corpus_files, folder, batch_and_text, tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    model, (batch, text) = model_of(lora_rank=2, schedule="constant", lr=0.01), batch_and_text
    before = {name: p.clone() for name, p in model.named_parameters()}
    fitting = quiet_trainer(max_steps=2, limit_val_batches=0)
    fitting.fit(model, data_of(corpus_files, folder))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved and moved == {name for name, p in model.named_parameters() if p.requires_grad}
    (scores,) = fitting.test(model, data_of(corpus_files, folder), verbose=False)
    assert 0 <= scores["test/rouge1"] <= 100
    fitting.save_checkpoint(tmp_path / "lora.ckpt")
    options = grouped(RSTformer, SMALL | {"hidden_size": 18, "lora_rank": 2})
    again = RSTformer.load_from_checkpoint(tmp_path / "lora.ckpt", weights_only=True, **options)
    again.set_tokenizer(text)
    one, other = ([summary.sentences for summary in m.eval().summarize(batch)] for m in (model, again))
    assert one == other
    with pytest.raises(ValueError, match="cannot be merged into the weights of a LED"):
        model.export(tmp_path / "led")
    for ablation in ("wac", "no_discourse"):
        with pytest.raises(ValueError, match=f"ablation {ablation} is not available"):
            model_of(lora_rank=2, ablation=ablation)


@pytest.mark.cuda
@pytest.mark.parametrize("changes", [{"compile_layers": True}, {"checkpoint_activations": True}], ids=str)
def test_other_ways_to_compute_layers_train_on_a_gpu(changes, corpus_files, folder):
    model = model_of(formula="log_bias", heads=3, hidden_size=48, **changes)
    fitting = quiet_trainer(max_steps=2, accelerator="gpu", devices=1, limit_val_batches=0)
    fitting.fit(model, data_of(corpus_files, folder))
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_frozen_encoder_stays_as_it_is(tmp_path):
    small_led(dropout=0.5, encoder_layerdrop=0.5).save_pretrained(tmp_path)
    decoding = DecodingOptions(min_length=1, max_length=9)
    options = {"vocab_size": 40, "checkpoint": str(tmp_path), "ablation": "no_discourse", "decoding": decoding}
    model = build_model(RSTformer, options | {"frozen": True}).train()
    ids = torch.randint(3, 40, (2, 9))
    first, second = (model.network.encode(ids).last_hidden_state for _ in range(2))
    torch.testing.assert_close(first, second)  # neither dropout nor dropped layers
    before = {name: weights.clone() for name, weights in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.network.led(encoder_outputs=model.network.encode(ids), labels=ids).loss.backward()
    optimizer.step()
    changed = {name for name, weights in model.named_parameters() if not weights.equal(before[name])}
    assert changed == {name for name in before if name.startswith("network.led.led.decoder.")}
    trained = build_model(RSTformer, options).train()
    first, second = (trained.network.encode(ids).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)


def test_what_does_not_fit_is_refused(tmp_path, corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    plain = prepared(data_of(corpus_files, folder, parser=None, ablation="no_discourse"))
    with pytest.raises(UserError, match="give both the same ablation"):
        model_of().loss_terms(next(iter(plain.test_dataloader())))
    data = data_of(corpus_files, folder, ablation="permuted")
    message = r"model\.injection\.ablation is 'ria', data\.ablation 'permuted': give both the same ablation"
    for start in (quiet_trainer(max_steps=1).fit, quiet_trainer().test, quiet_trainer().predict):
        with pytest.raises(UserError, match=message):
            start(model_of(ablation="ria"), data)
    data = data_of(corpus_files, folder, parser=RightBranchingParser())
    with pytest.raises(UserError, match=r"parser has 15 relations, the model 3: give model\.injection\.relations"):
        quiet_trainer(max_epochs=1).fit(model_of(), data)
    with pytest.raises(ValueError, match="the parse has 3 relations, but the model has 5"):
        model_of(heads=5, relations=5).loss_terms(batch)
    with pytest.raises(UserError, match="raise --model"):
        model_of(vocab_size=len(text) - 1).set_tokenizer(text)
    randomized(model_of(ablation="no_discourse"), text).export(tmp_path / "led")
    pretrained = build_model(RSTformer, SMALL | {"checkpoint": str(tmp_path / "led")})
    with pytest.raises(UserError, match=r"encoder\.checkpoint is '.*led', data\.checkpoint None: give both the same"):
        quiet_trainer(max_steps=1).fit(pretrained, data_of(corpus_files, folder))
    other = SubwordTokenizer.build(["otter"], SMALLEST)
    other.start, other.stop = other.stop, other.start
    with pytest.raises(UserError, match="differ in the pretrained model"):
        model_of().set_tokenizer(other)


def test_what_is_too_long_is_named_with_its_remedy(corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    longest = batch.ids[int(batch.source_mask.sum(1).argmax())]
    short = model_of(positions=20)
    short.set_tokenizer(text)
    with pytest.raises(UserError, match=rf"'{longest}' has \d+ tokens, .* 20 positions: lower data\.max_source"):
        short.loss_terms(batch)
    data = data_of(corpus_files, folder)
    with pytest.raises(UserError, match=r"document 'doc-\d+' has \d+ tokens, .* 20 positions"):
        quiet_trainer(max_steps=1, limit_train_batches=0).fit(short, data)  # before the first batch
    short = model_of(target_positions=5, decoding=DecodingOptions(min_length=1, max_length=5))
    short.set_tokenizer(text)
    with pytest.raises(UserError, match=r"a summary has \d+ tokens, .* 5 positions: lower data\.max_target"):
        short.loss_terms(batch)
    with pytest.raises(ValueError, match=r"decoding\.max_length 30: the decoder has 20 positions"):
        model_of(target_positions=20)
    for window in (7, 0):
        with pytest.raises(ValueError, match=rf"model\.encoder\.window {window}: .* even and at least 2"):
            model_of(window=window)
    with pytest.raises(ValueError, match=r"model\.encoder\.hidden_size 16 does not divide into 3 heads"):
        build_model(RSTformer, SMALL)


def test_a_window_that_leaves_the_band_is_found_before_training(corpus_files, folder):
    data = data_of(corpus_files, folder, half_width=1)
    pattern = r"document '(doc-\d+)' of train: the window of 8 tokens .* reaches (\d+) EDUs .* is 1: raise"
    with pytest.raises(UserError, match=pattern) as caught:
        quiet_trainer(max_steps=1).fit(model_of(), data)
    reported, widest = re.search(pattern, str(caught.value)), 0
    for row in data.features("train"):  # pair by pair
        bounds = data.cache.get(row["parse"]).edus.tolist()
        edus = [next((e for e, (a, b) in enumerate(bounds) if a < end and start < b), -1)
                for start, end in zip(row["starts"], row["ends"])]  # fmt: skip
        pairs = [abs(a - b) for i, a in enumerate(edus) for b in edus[max(0, i - 8) : i] if min(a, b) >= 0]
        widest = max(widest, *pairs, 0)
        if row["id"] == reported[1]:
            assert max(pairs, default=0) == int(reported[2])
    assert widest == int(reported[2]) > 1
    data = data_of(corpus_files, folder, half_width=widest)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(model_of(), data)
    # what reads no window does not mind
    plain = data_of(corpus_files, folder, half_width=1, ablation="no_discourse", parser=None)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(model_of(ablation="no_discourse"), plain)
