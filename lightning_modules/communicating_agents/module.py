"""Deep communicating agents: Celikyilmaz, Bosselut, He and Choi, NAACL 2018 (arXiv 1803.10357)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from datamodules.communicating_agents import CommunicatingAgentsBatch
from datamodules.documents import UserError
from datamodules.text.vocabulary import Vocabulary
from datamodules.text.word_vectors import read_word_vectors
from datamodules.text.words import SENTENCE_ENDS
from lightning_modules.communicating_agents.decoder import AgentMemory
from lightning_modules.communicating_agents.messages import Messages
from lightning_modules.communicating_agents.network import AgentsDecoded, AgentsState, CommunicatingAgentsNetwork
from lightning_modules.copying_summarizer import CopyingSummarizer, EmbeddingOptions
from lightning_modules.decoding.beam_search import State
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.networks.copying import CopyOutputs
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.options import OptimizerOptions


@dataclass(frozen=True)
class AgentEmbedding(EmbeddingOptions):
    """Embedding of words, at random or pretrained."""

    size: int = 200
    """Width E."""
    word_vectors: Path | None = None
    """File of pretrained vectors of width E (text format of GloVe or word2vec, plain or .gz) that initialize it; words
    that it lacks are initialized at random."""


class CommunicatingAgents(CopyingSummarizer):
    """Encoder agents that read parts of a document and exchange messages (Celikyilmaz et al. 2018).

    Each of M agents encodes one part of the document; the decoder attends to words within each agent and to the agents,
    and copies from the parts of all of them.

    Loss terms: `nll`, the mean over each summary of -log P(y_t); with `cohesion`, the sum over each summary of the
    cosines between the decoder states at the ends of consecutive sentences.

    Models of the paper's table 2: m1 `agents: 1, cohesion: 0`; m2 `agents: 1, cohesion: 0.1`; m5 `agents: 3, cohesion:
    0.1`; m4 adds to m5 `communication: false, multi_agent_pointer: false`. With the callback `SelfCritical`, m3 starts
    from m1, and m6 and m7 from m5, m7 with `contextual_agent_attention: true`.

    Args:
        vocab_size: V, including the four special symbols.
        embedding: embedding of words, see `AgentEmbedding`.
        hidden_size: H of the decoder and of each encoder direction.
        agents: M, the largest number of agents; short documents have fewer. The DataModule needs the same number.
        communication: exchange messages between agents; otherwise z = 0.
        messages: computation of a message: the mean of the other agents' last states (the paper), a feed-forward
            network of sender and receiver, or attention.
        contextual_layers: number of encoder layers after the local one.
        multi_agent_pointer: give each agent its own probability to copy.
        contextual_agent_attention: condition the vocabulary distribution on the previous step's context.
        cohesion: weight lambda of semantic cohesion; 0 disables it.
        sentence_ends: words that end a sentence.
        dropout: dropout on embeddings, encoder states and before the output layer.
        optimizer: learning rate of Adam.
        decoding: decoding options; by default beam size 5, 35 to 110 tokens, mean log-probability.
        val_summaries: number of validation documents summarized at each validation during training; -1 for all.
    """

    batch_type = CommunicatingAgentsBatch
    validation_names = ("nll", "cohesion")

    def __init__(
        self,
        vocab_size: int = 50_000,
        embedding: AgentEmbedding = AgentEmbedding(),
        hidden_size: int = 128,
        agents: int = 3,
        communication: bool = True,
        messages: Messages = "mean",
        contextual_layers: int = 2,
        multi_agent_pointer: bool = True,
        contextual_agent_attention: bool = False,
        cohesion: float = 0.0,
        sentence_ends: tuple[str, ...] = SENTENCE_ENDS,
        dropout: float = 0.0,
        optimizer: OptimizerOptions = OptimizerOptions(),
        decoding: DecodingOptions | None = DecodingOptions(beam_size=5, max_length=110),
        val_summaries: int = 256,
    ) -> None:
        super().__init__(vocab_size, decoding, val_summaries)
        if agents < 1 or contextual_layers < 0 or cohesion < 0:
            values = f"{agents}, {contextual_layers}, {cohesion}"
            raise ValueError(f"model.agents is at least 1, contextual_layers and cohesion at least 0; got {values}")
        self.agents = agents
        self.optimizer = optimizer
        self.word_vectors = embedding.word_vectors
        self.sentence_ends = tuple(sentence_ends)
        self.network = CommunicatingAgentsNetwork(
            vocab_size=vocab_size, embedding_size=embedding.size, hidden_size=hidden_size, agents=agents,
            messages=messages if communication else None, contextual_layers=contextual_layers,
            multi_agent_pointer=multi_agent_pointer, contextual_agent_attention=contextual_agent_attention,
            dropout=dropout, embedding_std=embedding.std,
        )  # fmt: skip
        self.loss_weights["cohesion"] = cohesion
        self.has_cohesion = cohesion > 0
        self.end_ids: list[int] = []  # set by `set_tokenizer`; not a buffer, which weight averaging would average

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.optimizer.lr)

    def setup(self, stage: str) -> None:
        """Set the vocabulary and, when training starts, the word vectors."""
        super().setup(stage)
        # a resumed training takes the embedding from the checkpoint, and the file may no longer exist
        if stage == "fit" and self.word_vectors is not None and self.trainer.ckpt_path is None:
            self.use_word_vectors(Path(self.word_vectors))

    def set_tokenizer(self, vocabulary: Vocabulary) -> None:
        """Set the vocabulary; a `UserError` if cohesion is on and no word of the vocabulary ends a sentence."""
        super().set_tokenizer(vocabulary)
        ends = vocabulary.end_ids(self.sentence_ends)  # those in the vocabulary
        if self.has_cohesion and not ends:
            raise UserError(
                f"the vocabulary has none of {', '.join(self.sentence_ends)}, so that cohesion finds no end of a "
                "sentence; give --model.sentence_ends words that it has, or --model.cohesion 0"
            )
        self.end_ids = list(ends)

    @torch.no_grad()
    def use_word_vectors(self, path: Path) -> None:
        """Initialize the embeddings of those words of the vocabulary that a file of pretrained vectors contains."""
        weight = self.network.embedding.weight
        ids, vectors = read_word_vectors(path, self.tokenizer.words, weight.shape[1])            # [n], [n, E]
        weight[ids.to(weight.device)] = vectors.to(weight)
        rank_zero_info(f"{path}: vectors of {len(ids):,} of the vocabulary's {len(self.tokenizer):,} words")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check and restore as `Summarizer` does, but let checkpoints lack communication or contextual agent attention.

        Weights that the checkpoint lacks start without effect: m5 may start from m4, and m7 from m5 (see the class).
        """
        weights = checkpoint["state_dict"]
        for name, initial in self.state_dict().items():
            # weights of messages received, and of the context of the previous step
            adds_input = ".received." in name or name == "network.decoder.combine_before.weight"
            if name not in weights and adds_input:
                weights[name] = torch.zeros_like(initial)  # adds 0 to a sum
                rank_zero_info(f"the checkpoint has no {name}: these weights start at zero")
            elif name not in weights and ".messages." in name:
                weights[name] = initial  # without effect while `received` is zero
        cohesion_weight = self.loss_weights["cohesion"]
        super().on_load_checkpoint(checkpoint)
        self.loss_weights["cohesion"] = cohesion_weight  # of this run, which may differ from the checkpoint's

    def decode(self, batch: CommunicatingAgentsBatch, target_input: Tensor) -> AgentsDecoded:
        """Run the network, teacher-forced, over the start symbol and the words of K summaries, [B, K, T]."""
        return self.network(batch.source, batch.lengths, target_input)

    def decoder_step(self, words: Tensor, state: State, memory: State) -> tuple[CopyOutputs, State]:
        """Run one step of the network for the previous words [B, K]."""
        agent_memory = AgentMemory(*(memory[name] for name in AgentMemory._fields))  # `memory` has more, for copying
        features, attended, next_state = self.network.step(words, AgentsState(**state), agent_memory)
        return CopyOutputs(features, attended.copying, attended.gate), next_state._asdict()

    def loss_terms(self, batch: CommunicatingAgentsBatch) -> dict[str, Tensor]:
        """Return `nll` and, if it is on, `cohesion` (see the class), averaged over documents and not yet weighted."""
        decoded = self.decode(batch, batch.target_input.unsqueeze(1))  # K = 1; `target_rows`: flat positions of words
        log_probs = self.target_log_probs(batch, decoded, batch.target.unsqueeze(1), batch.target_rows)  # 0 at padding
        terms = {"nll": -(log_probs.squeeze(1).sum(1) / batch.target_lengths).mean()}
        if self.has_cohesion:
            ends = torch.stack([batch.target == token for token in self.end_ids]).any(0)         # [B, T]
            terms["cohesion"] = cohesion(decoded.states.squeeze(1), ends).mean()
        return terms


def cohesion(states: Tensor, ends: Tensor) -> Tensor:
    """Return sum_{q > 1} cos(s'_q, s'_{q-1}), with s'_q the state at the end of sentence q: [..., T, H] -> [...].

    This is the term that Celikyilmaz et al. 2018 add to the loss; 0 for fewer than two sentences. `ends` is True in
    steps that end a sentence, [..., T].
    """
    positions = torch.arange(ends.shape[-1], device=ends.device)
    last_end = positions.expand(ends.shape).masked_fill(~ends, -1).cummax(-1).values             # [..., T]
    previous_end = pad(last_end[..., :-1], (1, 0), value=-1)  # last end before this step, -1 if there is none
    index = previous_end.clamp_min(0).unsqueeze(-1).expand(states.shape)  # -1 reads step 0, masked below
    previous_states = states.gather(-2, index)                                                   # [..., T, H]
    similarity = cosine_similarity(upcast_half(states), upcast_half(previous_states), dim=-1)    # [..., T]
    return similarity.masked_fill(~(ends & (previous_end >= 0)), 0).sum(-1)
