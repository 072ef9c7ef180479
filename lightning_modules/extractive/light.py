"""BertSum without Lightning and `transformers`, for commands that answer at once: importing both takes seconds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.batch import pair_mask
from datamodules.text.sentence_layout import layout_features, pairs_with_common_ngram
from datamodules.text.subword_tokenizer import EncoderTokenizer, by_token
from datamodules.text.subwords import encoder_path
from datamodules.text.words import tokenize
from lightning_modules.checkpoints import read_exported
from lightning_modules.exported import EXPORTED
from lightning_modules.extractive.selection import Relations, SelectionOptions
from lightning_modules.extractive.sentence_network import InterSentenceOptions, SentenceNetwork
from lightning_modules.extractive.summary import ExtractiveSummary, extract
from lightning_modules.networks.bert import BertReader
from lightning_modules.networks.passages import Reader
from lightning_modules.options import SentenceEncoderOptions


class LightExtractor:
    """A trained BertSum, without Lightning, which selects sentences as `BertSum.summarize` does, document by document.

    It is for models that encode each sentence separately, with a frozen BERT or an encoder from scratch, and select the
    best sentences, with trigram blocking or without. `model` and `data` are the arguments of the model and the data in
    a config. The folder is one of `precis export`: weights and, in `text`, the tokenizer if it is not the encoder's.

    Raises:
        UserError: if the encoder is not installed, or the weights cannot be read.
    """

    def __init__(self, model: Mapping[str, Any], data: Mapping[str, Any], folder: Path) -> None:
        self.selection = SelectionOptions(**(model["selection"] or {}))  # null in a config stands for the defaults
        self.piece = data["piece"]  # maximum tokens of a piece, into which longer sentences are split
        self.max_source = data["max_source"]  # maximum tokens of a document
        encoder = SentenceEncoderOptions(**model["encoder"])
        tokenizer = folder / "text"
        if not tokenizer.is_dir():  # a compact export omits the tokenizer of a frozen encoder
            tokenizer = Path(encoder_path(encoder.checkpoint))
        self.tokenizer = EncoderTokenizer.load(tokenizer)
        if encoder.checkpoint is None:  # trained from scratch; 0.0 is its dropout
            reader = Reader.from_scratch(model["vocab_size"], encoder.hidden_size, encoder.heads, encoder.layers, 0.0)
        else:
            reader = BertReader(encoder_path(encoder.checkpoint))
        self.network = SentenceNetwork(
            reader=reader, encoding=model["encoding"], pooling=model["pooling"], scoring=model["scoring"],
            between=InterSentenceOptions(**model["inter_sentence"]), dropout=0.0,
            interval_segments=encoder.interval_segments,
        )  # fmt: skip
        state = read_exported(folder / EXPORTED)["state_dict"]
        weights = {name.removeprefix("network."): value for name, value in state.items()}
        self.network.load_state_dict(weights, strict=False)  # `weights` may lack a frozen encoder
        self.network.eval()

    @torch.inference_mode()
    def sentence_scores(self, sentences: Sequence[str]) -> Tensor:
        """Return the scores in [0, 1] of the first L sentences, as many as `max_source` tokens allow, [L]."""
        pieces = self.tokenizer.pieces(sentences, self.piece, self.max_source)  # a long sentence has several
        # index of the sentence of each token, and whether the token is the first of a piece
        owner, heads = by_token(len(pieces.tokens), pieces.starts, pieces.owners)
        scored = self.network(  # a batch of one document
            tokens=torch.tensor([pieces.tokens]), lengths=torch.tensor([len(pieces.tokens)]),
            owner=torch.tensor([owner]), heads=torch.tensor([heads]).bool(), starts=[pieces.starts],
            mask=torch.ones(1, pieces.sentences, dtype=torch.bool),  # `sentences`: their number L
            features=layout_features([sentences[: pieces.sentences]]),
        )  # fmt: skip
        return scored.logits[0].sigmoid()

    def summarize(self, name: str, sentences: Sequence[str], selection: SelectionOptions) -> ExtractiveSummary:
        """Return the summary, called `name`, of a document with at least one sentence."""
        scores = self.sentence_scores(sentences).unsqueeze(0)                        # [1, L]
        sentences_read = list(sentences[: scores.shape[1]])  # without those that `max_source` cuts off
        candidates = torch.ones_like(scores, dtype=torch.bool)  # all may be selected
        relations = None
        if selection.selector != "top_k":
            pairs = pairs_with_common_ngram([tokenize(sentence) for sentence in sentences_read])
            # trigram blocking reads only the pairs; `scores` fill the two fields of similarities
            relations = Relations(scores, scores, pair_mask([pairs], len(sentences_read)))
        return extract([name], [[]], [sentences_read], scores, candidates, relations, selection)[0]  # no references
