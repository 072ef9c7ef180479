"""Documents of any kind, and small extractive models over them."""

from model_options import build_model

from datamodules.bertsum import ExtractiveData
from datamodules.corpora import Texts
from datamodules.documents import Document
from datamodules.text.subword_tokenizer import EncoderTokenizer
from lightning_modules.extractive.bertsum import BertSum

DOCUMENTS = [
    Document("none", []),
    Document("one", [["A storm hit the coast."]], [["A storm."]]),
    Document("same", [["The same words again."] * 4], [["The same words."]]),
    Document("long", [["storm coast town " * 60, "Boats sank.", "", "Nobody slept."]], [["Boats sank."]]),
    Document("many", [[f"Sentence {number} of many." for number in range(12)]], [["Sentence 3 of many."]]),
]
TEXT = EncoderTokenizer.build([" ".join(document.sentences) for document in DOCUMENTS], 300)
SMALL = {"vocab_size": 300, "checkpoint": None, "hidden_size": 8, "heads": 2, "layers": 1, "dropout": 0.0}
BETWEEN = {"inter_sentence.layers": 1, "inter_sentence.heads": 2, "inter_sentence.inner_size": 8}


def data(**arguments) -> ExtractiveData:
    made = ExtractiveData(Texts([]), 300, None, **{"piece": 20} | arguments)
    made.tokenizer = TEXT
    return made


def batch_of(data, documents: list[Document]):
    return data.collate([data.encode(d) | {"id": d.id, "references": d.references} for d in documents])


def bertsum(**arguments) -> BertSum:
    made = build_model(BertSum, SMALL | BETWEEN | arguments)
    made.set_tokenizer(TEXT)
    return made
