"""RSTformer: loss, ablations, learning, generation, checkpoints and exports."""

import pytest
import torch
from model_options import build_model
from pytorch_lightning import seed_everything
from quiet_trainer import quiet_trainer
from small_rstformer import SMALL, data_of, model_of, randomized, ready
from transformers import AutoTokenizer, LEDForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from datamodules.discourse.parses import DiscourseParse
from datamodules.documents import UserError
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.rstformer.injection import ABLATIONS
from lightning_modules.rstformer.module import RSTformer
from tests.made_up_parses import RELATIONS, MadeUpParser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rstformer")


@pytest.fixture(scope="module")
def batch_and_text(corpus_files, folder):
    data = ready(corpus_files, folder)
    return next(iter(data.test_dataloader())), data.tokenizer


def test_the_ablations_differ(corpus_files, folder, batch_and_text):
    _, text = batch_and_text
    losses = {}
    for ablation in ABLATIONS:
        data = ready(corpus_files, folder, ablation=ablation)
        model = randomized(model_of(formula="product", ablation=ablation), text)
        batch = next(iter(data.test_dataloader()))
        with torch.no_grad():
            losses[ablation] = model.loss_terms(batch)["nll"].item()
    assert len({round(loss, 5) for loss in losses.values()}) == len(losses), losses


class LateParser(MadeUpParser):
    """A parser whose only EDU is the last sentence."""

    def predict_step(self, batch, batch_idx):
        tree, band, gamma = torch.empty(0, 5), torch.zeros(1, 1, len(RELATIONS)), torch.ones(1)
        edus = [request.sentences[-1:] for request in batch]
        return [DiscourseParse.of(*pair, RELATIONS, tree, band, gamma=gamma) for pair in zip(batch, edus)]


@pytest.mark.parametrize("changes", [{"attention": "dense"}, {"attention": "chunked"}, {"lora_rank": 2}], ids=str)
def test_documents_whose_edus_are_all_cut_off_have_plain_attention(changes, corpus_files, folder):
    if "lora_rank" in changes:
        pytest.importorskip("peft", reason="needs the extra lora")
    data = ready(corpus_files, folder, parser=LateParser("late", band=8), max_source=8)
    model = randomized(model_of(formula="product", **changes), data.tokenizer)
    batch = next(iter(data.test_dataloader()))
    assert batch.token_edu.eq(-1).all() and batch.ldd.eq(0).all()

    def logits(discourse):
        masks = (batch.source, batch.source_mask, batch.global_mask)
        return model.network(*masks, discourse, decoder_input_ids=model.decoder_inputs(batch.target)).logits

    with torch.no_grad():
        ours = logits(model.discourse(batch))
        if model.network.adapters is not None:
            assert model.network.adapters.gamma.eq(0).all()
        else:
            model.network.injections = torch.nn.ModuleList()
            torch.testing.assert_close(ours, logits(None))


@pytest.mark.parametrize("ablation", ["ria", "permuted", "other"])
def test_controls_train_validate_and_write(ablation, corpus_files, folder):
    seed_everything(5, verbose=False)
    data, model = data_of(corpus_files, folder, ablation=ablation), model_of(formula="product", ablation=ablation)
    running = quiet_trainer(max_epochs=1, limit_train_batches=2, limit_val_batches=1)
    running.fit(model, data)
    assert running.callback_metrics["val/loss"].isfinite()
    (scores,) = running.test(model, data, verbose=False)
    assert 0 <= scores["test/rouge1"] <= 100


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
    data = ready(
        corpus_files, folder / "exported", parser=None, ablation="no_discourse", checkpoint=str(tmp_path / "led")
    )
    again.set_tokenizer(data.tokenizer)
    ours = next(iter(data.test_dataloader()))
    assert torch.equal(ours.source, batch.source)
    again.eval()
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


def test_initial_weights_have_the_deviation_that_is_asked_for():
    for std in (0.02, 0.1):
        led = model_of(init_std=std).network.led
        assert led.led.encoder.layers[0].fc1.weight.std().item() == pytest.approx(std, rel=0.15)
        assert led.led.shared.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert led.lm_head.weight is led.led.shared.weight


def test_what_discourse_learns_has_a_rate_of_its_own():
    model = model_of(formula="log_bias", learn_weights=True, schedule="constant", lr=1e-3)
    led, own = model.configure_optimizers()["optimizer"].param_groups
    assert (led["lr"], own["lr"], own["weight_decay"]) == (1e-3, 1e-2, 0)
    assert {id(p) for p in own["params"]} == {id(p) for p in model.network.injections.parameters()}
    assert len(led["params"]) + len(own["params"]) == len(list(model.parameters()))


SEARCHES = [{}, {"beam_size": 1}, {"alpha": 2.0}, {"length_penalty": "none"}, {"min_length": 9}, {"no_repeat_ngram": 2}]


@pytest.mark.parametrize("changes", SEARCHES, ids=str)
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
