import pytest
import torch
from pytorch_lightning import Trainer, seed_everything

from datamodules.corpora import Files
from datamodules.documents import CorpusError
from datamodules.rstformer import RSTformerData
from datamodules.text.subword_text import SMALLEST, SubwordText
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.right_branching import RightBranchingParser
from lightning_modules.rstformer import RSTformer, generation_options
from tests.datamodules.test_rstformer_data import MadeUpParser

DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=30)
SMALL = {"vocab_size": 320, "hidden_size": 16, "heads": 3, "layers": 2, "inner_size": 24, "window": 16}
SMALL |= {"positions": 64, "target_positions": 48, "dropout": 0.0, "relations": 3, "decoding": DECODING}


def model_of(**changes) -> RSTformer:
    torch.manual_seed(0)
    settings = SMALL | changes
    if settings["hidden_size"] % settings["heads"]:
        settings["hidden_size"] = 6 * settings["heads"]
    return RSTformer(**settings)


def data_of(files, folder, **changes) -> RSTformerData:
    settings = {"vocab_size": 320, "max_source": 60, "max_target": 40, "half_width": 8, "batch_size": 4}
    return RSTformerData(Files(**files), cache_dir=folder, **settings | {"parser": MadeUpParser()} | changes)


def ready(files, folder, **changes) -> RSTformerData:
    data = data_of(files, folder, **changes)
    data.prepare_data()
    data.setup("test")
    return data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rstformer")


@pytest.fixture(scope="module")
def batch_and_text(corpus_files, folder):
    data = ready(corpus_files, folder)
    return next(iter(data.test_dataloader())), data.text


def randomized(model, text):
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.use_text(text)
    return model.eval()


def test_the_loss_is_the_mean_over_each_summary(batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(), text)
    with torch.no_grad():
        logits = model.network(
            batch.source, batch.source_mask, batch.global_mask, model.discourse(batch),
            decoder_input_ids=batch.target_input,
        ).logits  # fmt: skip
        means = []
        for n in range(batch.batch_size):
            steps = range(int(batch.target_mask[n].sum()))
            means.append(sum(-logits[n, t].log_softmax(-1)[batch.target[n, t]] for t in steps) / len(steps))
        torch.testing.assert_close(model.loss_terms(batch)["nll"], sum(means) / len(means))


def test_the_ablations_differ_and_no_discourse_is_the_led(corpus_files, folder, batch_and_text):
    _, text = batch_and_text
    losses = {}
    for ablation in ("none", "wac", "ria", "no_labels", "one_best", "no_discourse"):
        data = ready(corpus_files, folder, ablation=ablation)
        model = randomized(model_of(injection="product", ablation=ablation), text)
        batch = next(iter(data.test_dataloader()))
        with torch.no_grad():
            losses[ablation] = model.loss_terms(batch)["nll"].item()
    assert len({round(loss, 5) for loss in losses.values()}) == len(losses), losses
    with torch.no_grad():
        led = model.network.led
        plain = led(
            batch.source, attention_mask=batch.source_mask, global_attention_mask=batch.global_mask,
            decoder_input_ids=batch.target_input,
        ).logits  # fmt: skip
        nll = -plain.log_softmax(-1).gather(2, batch.target.unsqueeze(-1)).squeeze(-1) * batch.target_mask
    assert (nll.sum(1) / batch.target_mask.sum(1)).mean().item() == pytest.approx(losses["no_discourse"], abs=1e-5)


def test_greedy_summaries_follow_the_teacher_forced_distribution(batch_and_text):
    batch, text = batch_and_text
    model = randomized(model_of(injection="one_plus"), text)
    samples = model.sample(batch, DecodingOptions(beam_size=1, min_length=0, max_length=8))
    assert samples.tokens.shape[:2] == (batch.batch_size, 1)
    log_probs = model.log_probs(batch, samples)
    target = samples.tokens[:, 0]
    inputs = torch.cat([torch.full_like(target[:, :1], text.stop), target[:, :-1]], 1)
    with torch.no_grad():
        logits = model.network(
            batch.source, batch.source_mask, batch.global_mask, model.discourse(batch), decoder_input_ids=inputs
        ).logits
    logits[..., [text.start, text.pad, *range(len(text), 320)]] = float("-inf")
    for n, length in enumerate(samples.lengths[:, 0].tolist()):
        assert torch.equal(logits[n, :length].argmax(-1), target[n, :length])
        assert log_probs[n, 0, :length].lt(0).all() and log_probs[n, 0, length:].eq(0).all()
        assert target[n, length:].eq(text.pad).all()


@pytest.mark.parametrize("injection", ["log_bias", "product"])
def test_a_gradient_in_every_parameter_and_it_learns_by_heart(injection, corpus_files, folder):
    seed_everything(5, verbose=False)
    data = data_of(corpus_files, folder, parser=RightBranchingParser(band=8), max_train=4)
    model = model_of(hidden_size=48, heads=3, inner_size=96, relations=15, injection=injection,
                     relation_frequency=[1.0] * 15, learning_rate=5e-3, checkpoint_activations=True)  # fmt: skip
    missing = []

    def look(optimizer):
        missing.append([name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()])

    model.on_before_optimizer_step = look
    trainer = Trainer(
        accelerator="cpu", max_epochs=60, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, use_distributed_sampler=False, gradient_clip_val=2.0,
    )  # fmt: skip
    trainer.fit(model, data)
    assert missing[-1] == []
    summaries = model.eval().summarize(next(iter(data.train_dataloader())))
    assert len(summaries) == 4
    for summary in model.scored(summaries):
        assert summary.scores["rouge2"] == 100 and summary.scores["rougeLsum"] == 100, summary


def test_a_pretrained_led_is_taken_as_it_is(tmp_path, corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    small = randomized(model_of(ablation="no_discourse"), text)
    small.network.led.save_pretrained(tmp_path / "released")
    large = RSTformer(**SMALL | {"checkpoint": str(tmp_path / "released"), "hidden_size": 999, "injection": "bias"})
    large.use_text(text)
    with torch.no_grad():  # beta starts at 0
        loss = large.eval().loss_terms(batch)["nll"]
        torch.testing.assert_close(loss, small.loss_terms(ready_batch(corpus_files, folder))["nll"], atol=1e-5, rtol=0)


def ready_batch(files, folder):
    return next(iter(ready(files, folder, parser=None, ablation="no_discourse").test_dataloader()))


def test_what_does_not_fit_is_refused(corpus_files, folder, batch_and_text):
    batch, text = batch_and_text
    with pytest.raises(CorpusError, match="give both the same ablation"):
        model_of().loss_terms(ready_batch(corpus_files, folder))
    with pytest.raises(ValueError, match="2 heads for 3 relations: say how frequent"):
        model_of(heads=2)
    with pytest.raises(ValueError, match="the discourse has 3 relations, the model 5"):
        model_of(heads=5, relations=5).loss_terms(batch)
    with pytest.raises(CorpusError, match="raise --model"):
        model_of(vocab_size=len(text) - 1).use_text(text)
    with pytest.raises(ValueError, match="length_penalty gnmt"):
        model_of(decoding=DecodingOptions(length_penalty="gnmt"))
    other = SubwordText.build(["otter"], SMALLEST)
    other.start, other.stop = other.stop, other.start
    with pytest.raises(CorpusError, match="others in the pretrained model"):
        model_of().use_text(other)


def test_options_in_hugging_faces_names():
    beams = generation_options(DecodingOptions(beam_size=4, alpha=2.0, no_repeat_ngram=3, early_stopping=True))
    assert (beams["num_beams"], beams["length_penalty"], beams["no_repeat_ngram_size"]) == (4, 2.0, 3)
    assert generation_options(DecodingOptions(length_penalty="none"))["length_penalty"] == 0
    drawn = generation_options(DecodingOptions(sample=True, temperature=0.5, top_k=7, top_p=0.9))
    assert drawn["do_sample"] and (drawn["temperature"], drawn["top_k"], drawn["top_p"]) == (0.5, 7, 0.9)
