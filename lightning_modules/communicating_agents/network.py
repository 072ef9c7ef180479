"""The network of deep communicating agents: embedding, encoders of all agents, decoder, output layer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_modules.communicating_agents.decoder import AgentMemory, AgentsDecoder, Read
from lightning_modules.communicating_agents.encoder import AgentsEncoder, Parts, last_states
from lightning_modules.communicating_agents.messages import Messages


class AgentsState(NamedTuple):
    """What one decoder step hands to the next, for K summaries of each document."""

    hidden: Tensor  # [B, K, H]
    cell: Tensor  # [B, K, H]
    context: Tensor  # c* of the step before, [B, K, H]


class AgentsDecoded(NamedTuple):
    """Decoder outputs over T steps."""

    features: Tensor  # what the output layer reads, [B, K, T, H]
    attention: Tensor  # from which positions words are copied, [B, K, T, M I]
    gate: Tensor  # logit of p, [B, K, T]
    agents: Tensor  # agent attention g, [B, K, T, M]
    states: Tensor  # s_t, [B, K, T, H]


class CommunicatingAgentsNetwork(nn.Module):
    """Deep communicating agents (Celikyilmaz et al. 2018, section 2).

    Args:
        vocab_size: V, special words included.
        embedding_size: E.
        hidden_size: H of the decoder and of each encoder direction.
        agents: M, the largest number of agents that a document has.
        messages: how agents communicate; None if they do not, as is also the case with M = 1.
        contextual_layers: K.
        multi_agent_pointer: a p_a for each agent, or one p for all.
        contextual_agent_attention: let P_voc see c* of the step before.
        dropout: on embeddings, encoder states and the features before the output layer.
        embedding_std: of the normal that embeddings start from.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int = 200,
        hidden_size: int = 128,
        agents: int = 3,
        messages: Messages | None = "mean",
        contextual_layers: int = 2,
        multi_agent_pointer: bool = True,
        contextual_agent_attention: bool = False,
        dropout: float = 0.0,
        embedding_std: float = 0.1,
    ) -> None:
        super().__init__()
        several = agents > 1
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        nn.init.normal_(self.embedding.weight, std=embedding_std)
        self.encoder = AgentsEncoder(
            embedding_size, hidden_size, contextual_layers, messages if several else None, dropout
        )
        self.decoder = AgentsDecoder(
            embedding_size, hidden_size, several, multi_agent_pointer, contextual_agent_attention, dropout
        )
        self.output = nn.Linear(hidden_size, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[AgentMemory, AgentsState]:
        """Lets the agents read; the state that they leave has K = 1.

        Args:
            source: vocabulary ids, [B, M, I].
            lengths: tokens of each agent, 0 for padding agents, which come last, [B, M], on the CPU.
        """
        parts = Parts.of(lengths, source.shape[2], source.device)
        states = self.encoder(self.dropout(self.embedding(source)), parts)                       # [B, M, I, H]
        # s_0 is the first agent's last state; the paper says nothing of the cell
        hidden = last_states(states[:, :1], parts.last[:, :1])                                   # [B, 1, H]
        start = AgentsState(hidden, torch.zeros_like(hidden), torch.zeros_like(hidden))
        return self.decoder.memory(states, parts), start

    def step(self, words: Tensor, state: AgentsState, memory: AgentMemory) -> tuple[Tensor, Read, AgentsState]:
        """One decoder step for K summaries of each of B documents.

        Args:
            words: the words before, [B, K].

        Returns:
            What the output layer reads [B, K, H], what was read of the documents, the next state.
        """
        shape, embedded = words.shape, self.embedding(words)                                     # [B, K, E]
        states, hidden, cell = self.decoder.run(
            embedded.flatten(0, 1).unsqueeze(1), state.hidden.flatten(0, 1), state.cell.flatten(0, 1)
        )
        states = states.squeeze(1).unflatten(0, shape)                                           # [B, K, H]
        read = self.decoder.read(states, embedded, memory)
        features = self.decoder.features(states, read.context, state.context)
        return features, read, AgentsState(hidden.unflatten(0, shape), cell.unflatten(0, shape), read.context)

    def forward(self, source: Tensor, lengths: Tensor, target_input: Tensor) -> AgentsDecoded:
        """Teacher-forced pass over K summaries of each document, which the agents read once.

        As the decoder does not read what it finds, no step waits for another's attention: all are computed at once.

        Args:
            source: vocabulary ids, [B, M, I].
            lengths: tokens of each agent, [B, M], on the CPU.
            target_input: the start symbol, then the summary's words, [B, K, T].
        """
        (B, K, T), (memory, start) = target_input.shape, self.encode(source, lengths)
        embedded = self.dropout(self.embedding(target_input))                                    # [B, K, T, E]
        first = (tensor.expand(-1, K, -1).flatten(0, 1) for tensor in (start.hidden, start.cell))
        states = self.decoder.run(embedded.flatten(0, 1), *first)[0].reshape(B, K * T, -1)       # [B, K T, H]
        read = self.decoder.read(states, embedded.flatten(1, 2), memory)
        states, context, agents, copying = (
            tensor.unflatten(1, (K, T)) for tensor in (states, read.context, read.agents, read.copying)
        )
        before = pad(context, (0, 0, 1, -1))  # c*_{t-1}, [B, K, T, H]
        features = self.decoder.features(states, context, before)
        return AgentsDecoded(features, copying, read.gate.unflatten(1, (K, T)), agents, states)
