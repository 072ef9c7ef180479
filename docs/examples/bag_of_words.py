"""A bag-of-words attention baseline, in the spirit of Rush, Chopra and Weston, EMNLP 2015 (arXiv 1509.00685)."""

import torch
from bag_of_words_data import BagOfWordsBatch
from torch import Tensor, nn

from datamodules.text.vocabulary import PAD, START, STOP, UNK
from lightning_modules.decoding.beam_search import State, beam_search
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.summarizer import Summarizer, Summary, evaluating


# --8<-- [start:init]
class BagOfWords(Summarizer):
    """A recurrent decoder that attends to the words of a document, whose order it does not see.

    With embeddings x_i of the words and decoder states s_t: a_t = softmax(s_t x_i / sqrt(D)), c_t = sum_i a_ti x_i,
    P(y_t) = softmax(W [s_t; c_t] + b). Loss term: `nll`, the mean over each summary of -log P(y_t), then over the
    documents.

    Args:
        vocab_size: number of words V.
        hidden_size: size D of embeddings and decoder states.
        decoding: how summaries are decoded.
        val_summaries: number of validation documents to summarize at each validation in training; -1 for all.
    """

    batch_type = BagOfWordsBatch

    def __init__(
        self, vocab_size: int = 10_000, hidden_size: int = 128, decoding: DecodingOptions = DecodingOptions(),
        val_summaries: int = 256,
    ) -> None:  # fmt: skip
        super().__init__(vocab_size, decoding, val_summaries)
        self.embedding = nn.Embedding(vocab_size, hidden_size, padding_idx=PAD)
        self.decoder = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.output = nn.Linear(2 * hidden_size, vocab_size)  # reads [s_t; c_t], decoder state and attention context

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)
    # --8<-- [end:init]

    # --8<-- [start:loss]
    def read(self, batch: BagOfWordsBatch) -> tuple[State, State]:
        """Return the initial decoder state, the mean of the embeddings, and the memory: embeddings and their mask."""
        words = self.embedding(batch.source)                                         # [B, S, D]
        mask = batch.source_mask                                                     # [B, S]
        mean = (words * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)       # [B, D]
        return {"hidden": mean}, {"words": words, "mask": mask}

    def predict(self, states: Tensor, memory: State) -> Tensor:
        """Return log P(y_t) over the vocabulary, [B, T, V], from decoder states s_t, [B, T, D], and `read`'s memory."""
        words, mask = memory["words"], memory["mask"]
        scores = states @ words.transpose(1, 2) / states.shape[-1] ** 0.5            # [B, T, S]
        attention = scores.masked_fill(~mask.unsqueeze(1), float("-inf")).softmax(-1)  # a_t, 0 at padding
        context = attention @ words                                                  # [B, T, D]
        return self.output(torch.cat([states, context], -1)).log_softmax(-1)

    def loss_terms(self, batch: BagOfWordsBatch) -> dict[str, Tensor]:
        state, memory = self.read(batch)
        states, _ = self.decoder(self.embedding(batch.target_input), state["hidden"].unsqueeze(0))
        log_probs = self.predict(states, memory)                                     # [B, T, V]
        gold = log_probs.gather(-1, batch.target.unsqueeze(-1)).squeeze(-1)          # [B, T]
        is_word = batch.target != PAD                                                # [B, T]
        return {"nll": -((gold * is_word).sum(1) / is_word.sum(1)).mean()}
    # --8<-- [end:loss]

    # --8<-- [start:summarize]
    def step(self, tokens: Tensor, state: State, memory: State, count: int | None) -> tuple[None, Tensor, State]:
        """Score the next word of K hypotheses of each document, see `decoding.beam_search.Step`."""
        B, K = tokens.shape
        hidden = state["hidden"].reshape(1, B * K, -1)
        states, hidden = self.decoder(self.embedding(tokens).reshape(B * K, 1, -1), hidden)
        log_probs = self.predict(states.view(B, K, -1), memory)                      # [B, K, V]
        log_probs = log_probs[..., : len(self.tokenizer)]                            # columns of words
        return None, log_probs, {"hidden": hidden.view(B, K, -1)}                    # None: column i is word i

    def summarize(self, batch: BagOfWordsBatch) -> list[Summary]:
        with evaluating(self):
            state, memory = self.read(batch)
            start = torch.full((batch.batch_size,), START, device=batch.source.device)
            forbidden = (PAD, START, UNK)                                            # never generated
            hypotheses = beam_search(self.step, state, memory, start, STOP, self.decoding, forbidden, padding=PAD)
        summaries = []
        for i, document in enumerate(batch.ids):
            ids = hypotheses.tokens[i, 0, : hypotheses.lengths[i, 0]].tolist()       # the best hypothesis
            words = self.tokenizer.decode([word for word in ids if word != STOP], [], self.vocab_size)
            summaries.append(Summary(document, self.tokenizer.sentences(words), batch.references[i]))
        return summaries
    # --8<-- [end:summarize]
