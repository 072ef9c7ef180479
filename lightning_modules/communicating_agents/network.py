"""Network of deep communicating agents: embedding, encoders of all agents, decoder and output layer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_modules.communicating_agents.decoder import AgentMemory, AgentsDecoder, Attended
from lightning_modules.communicating_agents.encoder import AgentsEncoder, Parts, last_states
from lightning_modules.communicating_agents.messages import Messages
from lightning_modules.networks.dropout import Dropout


class AgentsState(NamedTuple):
    """Decoder state between two steps, for K summaries of each document."""

    hidden: Tensor  # [B, K, H]
    cell: Tensor  # [B, K, H]
    context: Tensor  # c* of the previous step, the context of all agents, [B, K, H]


class AgentsDecoded(NamedTuple):
    """Decoder outputs over T steps of K summaries of B documents, read by M agents of I tokens each."""

    features: Tensor  # input of the output layer, [B, K, T, H]
    attention: Tensor  # distribution over the positions to copy from, [B, K, T, M I]
    gate: Tensor  # logit of the probability p to generate instead of copying, [B, K, T]
    agents: Tensor  # agent attention g, [B, K, T, M]
    states: Tensor  # LSTM states s_t, [B, K, T, H]


class CommunicatingAgentsNetwork(nn.Module):
    """Network of deep communicating agents (Celikyilmaz et al. 2018, section 2); arguments as of `CommunicatingAgents`.

    `messages` None, or M = 1: no communication. Shapes: B documents, M parts of I tokens, K summaries of T tokens.
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
        self.embedding = nn.Embedding(vocab_size, embedding_size)
        nn.init.normal_(self.embedding.weight, std=embedding_std)
        self.encoder = AgentsEncoder(
            input_size=embedding_size, hidden_size=hidden_size, layers=contextual_layers,
            messages=messages if agents > 1 else None, dropout=dropout,
        )  # fmt: skip
        self.decoder = AgentsDecoder(
            embedding_size=embedding_size, hidden_size=hidden_size, agent_attention=agents > 1,
            multi_agent_pointer=multi_agent_pointer, contextual=contextual_agent_attention, dropout=dropout,
        )  # fmt: skip
        self.output = nn.Linear(hidden_size, vocab_size)
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[AgentMemory, AgentsState]:
        """Return the memory of documents [B, M, I], and the first decoder state, with K = 1, which callers expand.

        `source` has vocabulary ids, `lengths` the tokens of each of M agents, 0 for padding agents, [B, M], on the CPU.
        """
        parts = Parts.of(lengths, source.shape[2], source.device)
        states = self.encoder(self.dropout(self.embedding(source)), parts)                       # [B, M, I, H]
        # s_0 is the first agent's last state; the paper does not mention the cell, which starts at zero
        hidden = last_states(states[:, :1], parts.last[:, :1])                                   # [B, 1, H]
        start = AgentsState(hidden, cell=torch.zeros_like(hidden), context=torch.zeros_like(hidden))
        # W_5 h of the word attention (`decoder.words`) is computed once for all decoder steps
        return AgentMemory(states, self.decoder.words.project(states), parts.tokens, parts.agents), start

    def step(self, words: Tensor, state: AgentsState, memory: AgentMemory) -> tuple[Tensor, Attended, AgentsState]:
        """Run one decoder step for K summaries of each of B documents, after the previous words [B, K].

        Returns the features (input of the output layer) [B, K, H], the results of attention, and the next state.
        """
        embedded = self.embedding(words)                                                         # [B, K, E]
        previous = state.hidden.flatten(0, 1), state.cell.flatten(0, 1)                          # [B K, H] each
        states, hidden, cell = self.decoder.run_lstm(embedded.flatten(0, 1).unsqueeze(1), *previous)
        states, hidden, cell = (tensor.reshape(*words.shape, -1) for tensor in (states, hidden, cell))  # [B, K, H]
        attended = self.decoder.attend(states, embedded, memory)
        features = self.decoder.features(states, attended.context, state.context)  # c*_t, c*_{t-1}
        next_state = AgentsState(hidden, cell, attended.context)
        return features, attended, next_state

    def forward(self, source: Tensor, lengths: Tensor, target_input: Tensor) -> AgentsDecoded:
        """Run a teacher-forced pass over K summaries of each document, which is encoded once.

        The LSTM does not read the context of the previous step, so all steps are computed at once. `source` and
        `lengths` are as in `encode`, `target_input` is the start symbol and the summary's words, [B, K, T].
        """
        B, K, T = target_input.shape
        memory, start = self.encode(source, lengths)  # the state before the first step
        embedded = self.dropout(self.embedding(target_input))                                    # [B, K, T, E]
        hidden, cell = (tensor.expand(-1, K, -1).flatten(0, 1) for tensor in (start.hidden, start.cell))  # [B K, H]
        states, _, _ = self.decoder.run_lstm(embedded.flatten(0, 1), hidden, cell)               # [B K, T, H]
        states = states.reshape(B, K * T, -1)
        attended = self.decoder.attend(states, embedded.flatten(1, 2), memory)                   # for K T states
        states = states.unflatten(1, (K, T))                                                     # [B, K, T, H]
        context = attended.context.unflatten(1, (K, T))                                          # [B, K, T, H]
        previous_context = pad(context, (0, 0, 1, -1))  # c*_{t-1}: shifted by one step, zero in the first
        return AgentsDecoded(
            features=self.decoder.features(states, context, previous_context),
            attention=attended.copying.unflatten(1, (K, T)),  # u, the distribution over positions to copy from
            gate=attended.gate.unflatten(1, (K, T)),
            agents=attended.agents.unflatten(1, (K, T)),
            states=states,
        )
