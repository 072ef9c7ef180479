"""Deep communicating agents: Celikyilmaz, Bosselut, He and Choi, NAACL 2018 (arXiv 1803.10357)."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from datamodules.communicating_agents import CommunicatingAgentsBatch
from datamodules.documents import CorpusError
from datamodules.text.vocabulary import UNK, Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from datamodules.text.words import SENTENCE_ENDS
from lightning_modules.communicating_agents.cohesion import cohesion
from lightning_modules.communicating_agents.decoder import AgentMemory
from lightning_modules.communicating_agents.messages import Messages
from lightning_modules.communicating_agents.network import AgentsDecoded, AgentsState, CommunicatingAgentsNetwork
from lightning_modules.decoding.beam_search import Hypotheses, State
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.extended_words import (
    as_sentences,
    decoding_layer,
    drawn_log_probs,
    real_rows,
    shifted,
    texts_of,
    words_of,
    write,
)
from lightning_modules.networks.extended_output import (
    copied_words,
    every_word,
    gold_log_probs,
    likeliest_words,
    sampling_memory,
    search_memory,
)
from lightning_modules.summarizer import Samples, Summarizer, Summary, evaluating


class CommunicatingAgents(Summarizer):
    """M agents read a part of the document each and tell each other of it; the decoder attends to words and agents and
    copies from all of them (Celikyilmaz et al. 2018).

    Loss terms: `nll`, the mean over each summary of -log P(y_t); with `cohesion`, the sum over each summary's sentences
    of the cosine between the decoder's states at their ends and those before.

    The paper's rows: m1 `agents: 1, cohesion: 0`; m2 `agents: 1, cohesion: 0.1`; m4 as m5 with `communication: false,
    multi_agent_pointer: false`; m5 `agents: 3, cohesion: 0.1`. With `SelfCritical`, m3 goes on from m1, and m6 and m7
    from m5, m7 with `contextual_agent_attention: true`.

    Args:
        vocab_size: V, four special symbols included.
        embedding_size: E.
        hidden_size: H of the decoder and of each encoder direction.
        agents: M at most; shorter documents have fewer. Data and model are to be given the same number.
        communication: whether agents hear each other; otherwise z = 0.
        messages: how: the mean of the others' last states (the paper), a feed-forward network of both, attention.
        contextual_layers: encoder layers after the local one.
        multi_agent_pointer: whether each agent has a probability to copy of its own.
        contextual_agent_attention: whether the vocabulary's distribution sees the context of the step before.
        cohesion: weight lambda of semantic cohesion; 0 leaves it out.
        sentence_ends: words that end a sentence.
        word_vectors: file of pretrained vectors of width E (text format of GloVe or word2vec, plain or .gz) that the
            embedding starts from; words that it lacks start at random.
        dropout: on embeddings, encoder states and before the output layer.
        embedding_std: of the normal that embeddings start from.
        learning_rate: of Adam, where the command line names no other optimizer.
        decoding: how summaries are decoded; beam 5, 35 to 110 tokens, mean log-probability if not given.
        val_summaries: validation documents that are summarized at each validation in training; -1 for all.

    Raises:
        ValueError: if there is no agent, or `cohesion` is negative.
    """

    batch_type = CommunicatingAgentsBatch

    def __init__(
        self,
        vocab_size: int = 50_000,
        embedding_size: int = 200,
        hidden_size: int = 128,
        agents: int = 3,
        communication: bool = True,
        messages: Messages = "mean",
        contextual_layers: int = 2,
        multi_agent_pointer: bool = True,
        contextual_agent_attention: bool = False,
        cohesion: float = 0.0,
        sentence_ends: tuple[str, ...] = SENTENCE_ENDS,
        word_vectors: Path | None = None,
        dropout: float = 0.0,
        embedding_std: float = 0.1,
        learning_rate: float = 1e-3,
        decoding: DecodingOptions | None = None,
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding or DecodingOptions(beam_size=5, max_length=110), val_summaries)
        if agents < 1 or contextual_layers < 0 or cohesion < 0:
            raise ValueError(
                "model.agents is at least 1, contextual_layers and cohesion at least 0; "
                f"got {agents}, {contextual_layers}, {cohesion}"
            )
        self.learning_rate, self.word_vectors, self.sentence_ends = learning_rate, word_vectors, tuple(sentence_ends)
        self.network = CommunicatingAgentsNetwork(
            vocab_size,
            embedding_size,
            hidden_size,
            agents,
            messages if communication else None,
            contextual_layers,
            multi_agent_pointer,
            contextual_agent_attention,
            dropout,
            embedding_std,
        )
        self.loss_weights["cohesion"] = cohesion
        self.has_cohesion = cohesion > 0
        self.end_ids: list[int] = []  # of the text; no buffer, which weight averaging would average

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)

    # Text --------------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Takes the text, and at the start of a training the word vectors.

        Raises:
            CorpusError: if the text does not fit, or the file of word vectors is broken or of another width.
        """
        super().setup(stage)
        # not where training goes on: those weights come from a checkpoint, and the file need not be there any more
        if stage == "fit" and self.word_vectors is not None and self.trainer.ckpt_path is None:
            self.use_word_vectors(Path(self.word_vectors))

    def use_text(self, text: Vocabulary) -> None:
        """Takes a vocabulary.

        Raises:
            CorpusError: if it does not fit `vocab_size`, or cohesion is to be learned and it has no word that ends a
                sentence.
        """
        super().use_text(text)
        ends = text.end_ids(self.sentence_ends)
        if self.has_cohesion and not ends:
            raise CorpusError(
                f"the vocabulary has none of {', '.join(self.sentence_ends)}, so that cohesion finds no end of a "
                "sentence; give --model.sentence_ends words that it has, or --model.cohesion 0"
            )
        self.end_ids = list(ends)

    @torch.no_grad()
    def use_word_vectors(self, path: Path) -> None:
        """Starts the embedding from pretrained vectors.

        Raises:
            CorpusError: as `read_word_vectors`.
        """
        weight = self.network.embedding.weight
        rows, vectors = read_word_vectors(path, self.text.words, weight.shape[1])
        weight[rows.to(weight.device)] = vectors.to(weight)
        rank_zero_info(f"{path}: vectors of {len(rows):,} of the vocabulary's {len(self.text):,} words")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As in `Summarizer`; a model with contextual agent attention also goes on from one without it (m7 from m5)."""
        weights, name = checkpoint["state_dict"], "network.decoder.combine_before.weight"
        if self.network.decoder.combine_before is not None and name not in weights:
            weights[name] = torch.zeros_like(self.state_dict()[name])  # which changes nothing of what it computes
            rank_zero_info("the checkpoint has no contextual agent attention: its weights start at zero")
        own = self.loss_weights["cohesion"]
        super().on_load_checkpoint(checkpoint)
        self.loss_weights["cohesion"] = own  # of this run, which may be another than that of the weights

    # Training ----------------------------------------------------------------------------------------------------

    def _decode(self, batch: CommunicatingAgentsBatch, target_input: Tensor) -> AgentsDecoded:
        return self.network(batch.source, batch.lengths, target_input)

    def _log_likelihood(
        self, batch: CommunicatingAgentsBatch, decoded: AgentsDecoded, target: Tensor, rows: Tensor
    ) -> Tensor:
        """log P(y_t) of extended ids [B, K, T], 0 at padding; rows are the flat positions of the real tokens, [N]."""
        source = batch.source_extended.flatten(1)                                    # [B, M I]
        found = (decoded.features, decoded.attention, decoded.gate, source)
        return gold_log_probs(self.network.output, *found, target, rows, UNK)

    def loss_terms(self, batch: CommunicatingAgentsBatch) -> dict[str, Tensor]:
        """`nll` and perhaps `cohesion`: of each summary, and their means over the documents."""
        decoded = self._decode(batch, batch.target_input.unsqueeze(1))
        target = batch.target.unsqueeze(1)                                           # [B, 1, T]
        log_probs = self._log_likelihood(batch, decoded, target, batch.target_rows).squeeze(1)
        terms = {"nll": -(log_probs.sum(1) / batch.target_lengths).mean()}
        if self.has_cohesion:
            ends = torch.stack([batch.target == token for token in self.end_ids]).any(0)         # [B, T]
            terms["cohesion"] = cohesion(decoded.states.squeeze(1), ends).mean()
        return terms

    # Generation --------------------------------------------------------------------------------------------------

    def _step(self, tokens: Tensor, state: State, memory: State, count: int | None, layer: Any = None):
        """`decoding.Step` of the network; with a count it reads the output layer from `layer`."""
        words = tokens.masked_fill(tokens >= self.vocab_size, UNK)                   # [B, K]
        read_from = AgentMemory(*(memory[name] for name in AgentMemory._fields))
        features, read, after = self.network.step(words, AgentsState(**state), read_from)
        found = (features, read.copying, read.gate)
        if count is None:
            ids, scores = None, every_word(self.network.output, len(self.text), *found, memory)
        else:
            ids, scores = likeliest_words(*found, memory, layer, count)
        return ids, scores, after._asdict()

    def generate(
        self, batch: CommunicatingAgentsBatch, options: DecodingOptions, generator: torch.Generator | None = None
    ) -> Hypotheses:
        """Beam search or sampling; tokens are extended ids."""
        with evaluating(self):
            memory, start = self.network.encode(batch.source, batch.lengths)
            source, extended, layer = batch.source.flatten(1), batch.source_extended.flatten(1), None
            if options.sample:
                words = sampling_memory(extended, self.vocab_size)
            else:
                words = search_memory(self.network.output, source, extended, UNK)
                layer = decoding_layer(self.network.output, len(self.text))
            state = {name: tensor.squeeze(1) for name, tensor in start._asdict().items()}
            return write(partial(self._step, layer=layer), state, memory._asdict() | words, options, generator)

    def sample(self, batch: CommunicatingAgentsBatch, options: DecodingOptions) -> Samples:
        """Generated extended ids, [B, K, T], without gradient."""
        hypotheses = self.generate(batch, options)
        return Samples(hypotheses.tokens, hypotheses.lengths)

    def log_probs(
        self, batch: CommunicatingAgentsBatch, samples: Samples, options: DecodingOptions | None = None
    ) -> Tensor:
        """log P of given extended ids in one teacher-forced pass, [B, K, T]; 0 at padding. With `options` the
        distribution is the one that `sample` draws from with them."""
        decoded = self._decode(batch, shifted(samples.tokens, self.vocab_size))
        if options is None:
            return self._log_likelihood(batch, decoded, samples.tokens, real_rows(samples.tokens))
        outputs = (decoded.features, decoded.attention, decoded.gate, batch.source_extended.flatten(1))
        return drawn_log_probs(self.network.output, len(self.text), *outputs, samples, options)

    def texts(self, batch: CommunicatingAgentsBatch, samples: Samples) -> list[list[str]]:
        """Text of extended ids [B, K, T], K a document."""
        return texts_of(self.text, samples, batch.added, self.vocab_size)

    def source_ids(self, batch: CommunicatingAgentsBatch) -> Tensor:
        """Extended ids of the documents, one part after another, padded behind each, [B, M I]."""
        return batch.source_extended.flatten(1)

    def summarize(self, batch: CommunicatingAgentsBatch) -> list[Summary]:
        """The best hypothesis of each document as text, with the words that were copied."""
        best = self._best(batch)
        copied = self.explain(batch, best)[1].tolist()
        summaries = []
        for i, (tokens, length) in enumerate(zip(best.tokens[:, 0].tolist(), best.lengths[:, 0].tolist())):
            words = words_of(self.text, tokens[:length], batch.added[i], self.vocab_size)
            sentences, marks = as_sentences(self.text, words), copied[i][0][: len(words)]
            summaries.append(Summary(batch.ids[i], sentences, batch.references[i], words, marks))
        return summaries

    def _best(self, batch: CommunicatingAgentsBatch) -> Samples:
        hypotheses = self.generate(batch, self.decoding)
        return Samples(hypotheses.tokens[:, :1], hypotheses.lengths[:, :1])

    def explain(self, batch: CommunicatingAgentsBatch, samples: Samples) -> tuple[AgentsDecoded, Tensor]:
        """Teacher-forced pass over samples [B, K, T].

        Returns:
            The decoder's outputs, and for every token whether copying gave it more probability than the vocabulary did,
            [B, K, T].
        """
        with evaluating(self):
            target = samples.tokens
            decoded = self._decode(batch, shifted(target, self.vocab_size))
            found = (decoded.features, decoded.attention, decoded.gate, batch.source_extended.flatten(1))
            return decoded, copied_words(self.network.output, *found, target)

    def attention_of(
        self, batch: CommunicatingAgentsBatch, index: int
    ) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
        """What the heat map of one document's summary shows: from where it would copy.

        Returns:
            The document's words [S], the summary's [T], the attention [T, S], its sum over the summary [S].
        """
        best = self._best(batch)
        length, parts = int(best.lengths[index, 0]), batch.lengths[index]
        real = (torch.arange(batch.source.shape[2]) < parts.unsqueeze(1)).flatten()  # [M I]
        attention = self.explain(batch, best)[0].attention[index, 0, :length].float().cpu()[:, real].numpy()
        decode = lambda ids: self.text.decode(ids.tolist(), batch.added[index], self.vocab_size)  # noqa: E731
        source = decode(batch.source_extended[index].flatten().cpu()[real])
        return source, decode(best.tokens[index, 0, :length]), attention, attention.sum(0)
