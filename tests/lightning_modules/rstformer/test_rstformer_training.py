"""Training of RSTformer: less memory, lower precision, compiled, on GPUs; frozen; what is refused before it."""

import re

import pytest
import torch
from model_options import build_model, grouped
from quiet_trainer import quiet_trainer
from small_rstformer import SMALL, data_of, model_of, randomized, ready, small_led

from datamodules.documents import UserError
from datamodules.text.subword_tokenizer import SMALLEST, SubwordTokenizer
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.discourse_parser.right_branching import RightBranchingParser
from lightning_modules.networks.dropout import without_dropout
from lightning_modules.rstformer.module import RSTformer

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable. is deprecated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rstformer-training")


@pytest.fixture(scope="module")
def batch_and_text(corpus_files, folder):
    data = ready(corpus_files, folder)
    return next(iter(data.test_dataloader())), data.tokenizer


def loss_and_gradients(model, batch) -> tuple:
    loss = model.loss_terms(batch)["nll"]
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def both(batch, text, one: dict, other: dict) -> tuple:
    """Loss and gradients of two models with the same weights, in training mode."""
    models = [
        randomized(model_of(formula="log_bias", learn_weights=True, **changes), text) for changes in (one, other)
    ]
    models[1].load_state_dict(models[0].state_dict())
    return tuple(loss_and_gradients(model.train(), batch) for model in models)


def test_activations_are_computed_twice_in_a_rescoring_pass_too(batch_and_text):
    batch, text = batch_and_text
    kept, losses, weights = [], [], None
    for again in (False, True):
        model = randomized(model_of(formula="log_bias", dropout=0.4, checkpoint_activations=again), text).train()
        model.load_state_dict(weights or model.state_dict())
        weights, sizes = model.state_dict(), []
        save = torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: s.append(t.numel()) or t, lambda t: t)
        with without_dropout(model), save:
            losses.append(model.loss_terms(batch)["nll"].detach())
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 2
    torch.testing.assert_close(*losses)


@pytest.mark.integration
def test_compiled_layers_change_nothing(batch_and_text, monkeypatch):
    original, compiled = torch.nn.Module.compile, []

    def without_code(module, **options):  # what is captured is run as it is: nothing is generated, which takes minutes
        compiled.append(module)
        original(module, backend="aot_eager", dynamic=True, **options)

    monkeypatch.setattr(torch.nn.Module, "compile", without_code)
    one, other = both(*batch_and_text, {"layers": 1}, {"layers": 1, "compile_layers": True})
    assert len(compiled) == 2
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_bfloat16_is_near_and_trains_everything(batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(formula="log_bias"), text)
    exact, _ = loss_and_gradients(model, batch)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        near, gradients = loss_and_gradients(model, batch)
    torch.testing.assert_close(near.float(), exact, atol=0.05, rtol=0.02)
    assert len(gradients) == len(list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_rst_lora_trains_adapters_and_writes(corpus_files, folder, tmp_path):
    pytest.importorskip("peft", reason="needs the extra lora")
    model = model_of(lora_rank=2, schedule="constant", lr=0.01)
    before = {name: p.clone() for name, p in model.named_parameters()}
    fitting = quiet_trainer(max_steps=2, limit_val_batches=0)
    fitting.fit(model, data_of(corpus_files, folder))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved and moved == {name for name, p in model.named_parameters() if p.requires_grad}
    fitting.save_checkpoint(tmp_path / "lora.ckpt")
    again = RSTformer.load_from_checkpoint(
        tmp_path / "lora.ckpt", weights_only=True, **grouped(RSTformer, SMALL | {"hidden_size": 18, "lora_rank": 2})
    )
    data = ready(corpus_files, folder)
    batch = next(iter(data.test_dataloader()))
    summaries = []
    for one in (model, again):
        one.set_tokenizer(data.tokenizer)
        summaries.append([summary.sentences for summary in one.eval().summarize(batch)])
    assert summaries[0] == summaries[1]
    with pytest.raises(ValueError, match="cannot be merged into the weights of a LED"):
        model.export(tmp_path / "led")
    for ablation in ("wac", "no_discourse"):
        with pytest.raises(ValueError, match=f"ablation {ablation} is not available"):
            model_of(lora_rank=2, ablation=ablation)


@pytest.mark.cuda
@pytest.mark.parametrize("strategy", ["auto", "fsdp2"])
def test_trains_and_writes_on_a_gpu(strategy, corpus_files, folder):
    model = model_of(formula="log_bias", checkpoint_activations=True, heads=3, hidden_size=48)
    device = {"accelerator": "gpu", "devices": 1, "strategy": strategy, "precision": "bf16-mixed"}
    fitting = quiet_trainer(max_steps=2, val_check_interval=2, **device)
    fitting.fit(model, data_of(corpus_files, folder))
    assert fitting.callback_metrics["val/loss"].isfinite()


@pytest.mark.cuda
def test_compiled_layers_train_on_a_gpu(corpus_files, folder):
    model = model_of(formula="log_bias", compile_layers=True, heads=3, hidden_size=48)
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
    model.network(ids, labels=ids).loss.backward()
    optimizer.step()
    changed = {name for name, weights in model.named_parameters() if not weights.equal(before[name])}
    assert changed == {name for name in before if name.startswith("network.led.led.decoder.")}
    trained = build_model(RSTformer, options).train()
    first, second = (trained.network.encode(ids).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)


# What is refused before training ---------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused(corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    plain = next(iter(ready(corpus_files, folder, parser=None, ablation="no_discourse").test_dataloader()))
    with pytest.raises(UserError, match="give both the same ablation"):
        model_of().loss_terms(plain)
    with pytest.raises(ValueError, match="2 heads for 3 relations: give the frequency"):
        model_of(heads=2)
    with pytest.raises(ValueError, match="the parse has 3 relations, but the model has 5"):
        model_of(heads=5, relations=5).loss_terms(batch)
    with pytest.raises(UserError, match="raise --model"):
        model_of(vocab_size=len(text) - 1).set_tokenizer(text)
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
    narrow = next(iter(ready(corpus_files, folder, half_width=1).test_dataloader()))
    with pytest.raises(ValueError, match=r"document 'doc-.*the window of 8 tokens .* reaches \d EDUs"):
        model_of().loss_terms(narrow)


def test_the_relations_of_another_parser_are_refused_at_the_start(corpus_files, folder):
    data = data_of(corpus_files, folder, parser=RightBranchingParser())
    with pytest.raises(UserError, match=r"parser has 15 relations, the model 3: give model\.injection\.relations"):
        quiet_trainer(max_epochs=1).fit(model_of(), data)


def test_heads_name_their_relations_where_there_are_fewer(corpus_files, folder, caplog):
    with caplog.at_level("INFO"):
        model = model_of(heads=2, relation_frequency=[1.0, 3.0, 2.0])
        quiet_trainer(max_steps=1, limit_val_batches=0).fit(model, data_of(corpus_files, folder))
    assert "2 attention heads use the most frequent of 3 relations: contrast, cause" in caplog.text


@pytest.mark.parametrize("ours, theirs", [("ria", "none"), ("none", "permuted"), ("no_discourse", "one_best")])
def test_model_and_data_of_different_ablations_are_refused_at_the_start(ours, theirs, corpus_files, folder):
    data, model = data_of(corpus_files, folder, ablation=theirs), model_of(ablation=ours)
    message = rf"model\.injection\.ablation is '{ours}', data\.ablation '{theirs}': give both the same ablation"
    for start in (quiet_trainer(max_steps=1).fit, quiet_trainer().test, quiet_trainer().predict):
        with pytest.raises(UserError, match=message):
            start(model, data)


def test_a_pretrained_led_needs_its_own_tokenizer(tmp_path, corpus_files, folder, batch_and_text):
    randomized(model_of(ablation="no_discourse"), batch_and_text[1]).export(tmp_path / "led")
    model = build_model(RSTformer, SMALL | {"checkpoint": str(tmp_path / "led")})
    with pytest.raises(UserError, match=r"encoder\.checkpoint is '.*led', data\.checkpoint None: give both the same"):
        quiet_trainer(max_steps=1).fit(model, data_of(corpus_files, folder))


def test_a_window_that_leaves_the_band_is_found_before_training(corpus_files, folder):
    data = data_of(corpus_files, folder, half_width=1)
    steps = quiet_trainer(max_steps=1)
    with pytest.raises(UserError) as caught:
        steps.fit(model_of(), data)
    message = str(caught.value)
    pattern = r"document '(doc-\d+)' of train: the window of 8 tokens .* reaches (\d+) EDUs .* is 1: raise"
    reported = re.search(pattern, message)
    assert reported, message
    widest = 0
    for row in data.features("train"):  # pair by pair
        parse = data.cache.get(row["parse"])
        offsets = zip(row["starts"], row["ends"])
        edus = [next((e for e, (a, b) in enumerate(parse.edus.tolist()) if a < end and start < b), -1) if end else -1
                for start, end in offsets]  # fmt: skip
        pairs = [abs(a - b) for i, a in enumerate(edus) for b in edus[max(0, i - 8) : i] if min(a, b) >= 0]
        reach = max(pairs, default=0)
        widest = max(widest, reach)
        if row["id"] == reported[1]:
            assert reach == int(reported[2])
    assert widest == int(reported[2]) > 1
    data = data_of(corpus_files, folder, half_width=widest)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(model_of(), data)
    # what reads no window does not mind
    plain = data_of(corpus_files, folder, half_width=1, ablation="no_discourse", parser=None)
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(model_of(ablation="no_discourse"), plain)
