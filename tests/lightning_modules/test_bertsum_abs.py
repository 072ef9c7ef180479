import pytest
import torch
from model_options import build_model

from datamodules.bertsum_abs import BertSumAbsData
from datamodules.corpora import Texts
from datamodules.documents import Document, UserError
from datamodules.text.subword_tokenizer import EncoderTokenizer
from lightning_modules.bertsum_abs import BertSumAbs
from lightning_modules.extractive.bertsum import BertSum
from lightning_modules.options import EncoderAdamWOptions
from lightning_modules.schedules import two_rates
from lightning_modules.summarizer import Samples
from tests.lightning_modules.extractive.small_extractive import SMALL, batch_of

DOCUMENTS = [
    Document("none", [], [["A storm."]]),
    Document("storm", [["A storm hit the coast.", "Boats sank."]], [["A storm hit."]]),
    Document("long", [[f"Sentence {number} of many." for number in range(9)]]),
]
TEXT = EncoderTokenizer.build([" ".join(document.sentences) for document in DOCUMENTS], 290)


def model(**arguments) -> BertSumAbs:
    torch.manual_seed(0)
    decoder = {"decoder_layers": 2, "decoder_heads": 2, "decoder_inner_size": 16}
    made = build_model(BertSumAbs, SMALL | decoder | arguments)
    made.set_tokenizer(TEXT)
    return made.eval()


def make_batch(documents: list[Document] = DOCUMENTS):
    data = BertSumAbsData(Texts([]), 300, None, max_target=12)
    data.tokenizer = TEXT
    return batch_of(data, documents)


def saved(folder, name="best", **arguments):
    torch.manual_seed(1)
    extractive = build_model(BertSum, SMALL | {"inter_sentence.layers": 0} | arguments)
    (folder / "checkpoints").mkdir(parents=True)
    torch.save({"state_dict": extractive.state_dict(), "global_step": 0}, folder / "checkpoints" / f"{name}.ckpt")
    return extractive


def test_ext_abs_starts_from_an_extractive_models_encoder(tmp_path):
    extractive = saved(tmp_path / "run")
    made = model(encoder_from=tmp_path / "run")
    made.trainer = type("Fitting", (), {"datamodule": None, "ckpt_path": None})()
    made.setup("validate")
    other = extractive.network.reader.state_dict()
    assert any(not torch.equal(value, other[name]) for name, value in made.reader.state_dict().items())
    made.setup("fit")
    assert all(torch.equal(value, other[name]) for name, value in made.reader.state_dict().items())
    plain = model(interval_segments=False, encoder_from=tmp_path / "plain")
    saved(tmp_path / "plain", "last", interval_segments=False)
    plain.trainer = made.trainer
    plain.setup("fit")
    saved(tmp_path / "wide", hidden_size=16)
    made.encoder_from = tmp_path / "wide"
    with pytest.raises(UserError, match="another encoder, at model"):
        made.setup("fit")
    made.encoder_from = tmp_path / "nowhere"
    with pytest.raises(UserError, match="nowhere"):
        made.setup("fit")


@pytest.mark.parametrize("schedule", ["linear", "inverse_root", "constant"])
def test_rates_and_warm_ups_of_encoder_and_rest(schedule):
    module = torch.nn.ModuleDict({"inner": torch.nn.Linear(2, 2), "outer": torch.nn.Linear(2, 2)})
    options = EncoderAdamWOptions(10.0, schedule, 4, 0.1, encoder_lr=1.0, encoder_warmup_steps=0.5)
    made = two_rates(module, module["inner"], options, 20)
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
    decays = [(group["initial_lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert sorted(decays) == [(1.0, 0.0), (1.0, 0.1), (10.0, 0.0), (10.0, 0.1)]  # biases do not decay
    for step in range(20):
        for group in optimizer.param_groups:
            peak, rise = group["initial_lr"], 10 if group["initial_lr"] == 1.0 else 4
            after = {"linear": (20 - step) / (20 - rise), "inverse_root": (rise / (step + 1)) ** 0.5, "constant": 1.0}
            assert group["lr"] == pytest.approx(peak * min((step + 1) / rise, after[schedule]))
        optimizer.step()
        scheduler.step()


def test_the_activation_is_that_of_the_decoder_and_the_mark_between_sentences_no_word_of_samples():
    made, ids = model(sentence_mark="|"), TEXT("A storm hit. | Boats sank.")[0]
    samples = Samples(torch.tensor([[ids]]), torch.tensor([[len(ids)]]))
    assert made.texts(make_batch(DOCUMENTS[:1]), samples) == [["A storm hit. Boats sank."]]
    assert made._sentences("A storm hit. | Boats sank.") == ["A storm hit.", "Boats sank."]
    batch = make_batch(DOCUMENTS[1:2])
    losses = {name: model(activation=name).loss_terms(batch)["nll"].item() for name in ("relu", "gelu_tanh")}
    assert losses["relu"] != losses["gelu_tanh"]
    layer = model(activation="gelu_tanh").decoder.decoder[0]
    (network,) = [module for module in layer.modules() if hasattr(module, "activation")]
    x = torch.linspace(-3, 3, 7)
    by_hand = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    torch.testing.assert_close(network.activation(x), by_hand)
    # a document without a sentence has a finite loss in training, too
    made, batch = model(dropout=0.3).train(), make_batch()
    loss = made.loss_terms(batch)["nll"]
    loss.backward()
    assert loss.isfinite() and all(p.grad is None or p.grad.isfinite().all() for p in made.parameters())
    with pytest.raises(ValueError, match="max_target must be at least 2, got 1"):
        BertSumAbsData(Texts([]), max_target=1)
