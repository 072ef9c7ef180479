"""The decoder of communicating agents: attention to words within agents, attention to agents, one pointer into all."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lightning_modules.communicating_agents.encoder import Parts, initialise_lstm
from lightning_modules.networks.attention import CoverageAttention
from lightning_modules.networks.output_layer import wide


class AgentMemory(NamedTuple):
    """What the agents leave for the decoder."""

    states: Tensor  # [B, M, I, H]
    projected: Tensor  # W_5 h, [B, M, I, H]
    tokens: Tensor  # True at real tokens, see `Parts`, [B, M, I]
    agents: Tensor  # False at padding agents, [B, M]


class Read(NamedTuple):
    """What decoder states find in the documents, for N states a document."""

    context: Tensor  # c*, [B, N, H]
    agents: Tensor  # agent attention g, [B, N, M]
    copying: Tensor  # from which positions words are copied, sums to one, [B, N, M I]
    gate: Tensor  # logit of the probability to generate rather than copy, [B, N]


class AgentsDecoder(nn.Module):
    """One-layer LSTM that looks at the agents' states after each step (it does not read what it found).

        l_a = softmax(v_2^T tanh(W_5 h_a + W_6 s_t + b_1)),   c_a = sum_i l_{a,i} h_{a,i}
        g   = softmax(v_3^T tanh(W_7 c_a + W_8 s_t + b_2)),   c*  = sum_a g_a c_a
        p_a = sigmoid(v_5 c_a + v_6 s_t + v_7 y_t + b)

    The multi-agent pointer P(w) = sum_a g_a (p_a P_voc(w) + (1 - p_a) u_a(w)) is one mixture p P_voc + (1 - p) u with
    p = sum_a g_a p_a and the positions of agent a weighted by g_a (1 - p_a) / (1 - p): in this form it needs no
    distribution an agent. The plain pointer takes one p from c*, and g_a as those weights.

    Args:
        embedding_size: E.
        hidden_size: H.
        several: whether there is an agent to choose; with M = 1 g = 1 and W_7, W_8, v_3 are not there.
        multi_agent_pointer: a p_a for each agent.
        contextual: contextual agent attention, P_voc from [s_t; c*_t; c*_{t-1}]; the matrix of c*_{t-1} starts at zero,
            so that a model without it goes on from where it was.
        dropout: on the features before the output layer.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        several: bool,
        multi_agent_pointer: bool,
        contextual: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        E, H = embedding_size, hidden_size
        self.lstm = nn.LSTM(E, H, batch_first=True)
        initialise_lstm(self.lstm)
        self.words = CoverageAttention(H, H, H, coverage=False)
        self.agent_context = nn.Linear(H, H, bias=False) if several else None
        self.agent_query = nn.Linear(H, H) if several else None
        self.agent_score = nn.Linear(H, 1, bias=False) if several else None
        self.multi_agent_pointer = multi_agent_pointer
        self.pointer_context = nn.Linear(H, 1, bias=False)
        self.pointer_state = nn.Linear(H, 1, bias=False)
        self.pointer_word = nn.Linear(E, 1)
        self.combine = nn.Linear(2 * H, H)
        self.combine_before = nn.Linear(H, H, bias=False) if contextual else None
        if contextual:
            nn.init.zeros_(self.combine_before.weight)
        self.dropout = nn.Dropout(dropout)

    def memory(self, states: Tensor, parts: Parts) -> AgentMemory:
        """What every step reads of the encoders' states [B, M, I, H]."""
        return AgentMemory(states, self.words.project(states), parts.tokens, parts.agents)

    def run(self, embedded: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The LSTM over given words.

        Args:
            embedded: [N, T, E].
            hidden, cell: before the first word, [N, H].

        Returns:
            States s_t [N, T, H], and hidden and cell after the last word.
        """
        before = tuple(state.unsqueeze(0).to(embedded.dtype).contiguous() for state in (hidden, cell))
        states, (hidden, cell) = self.lstm(embedded, before)
        return states, hidden.squeeze(0), cell.squeeze(0)

    def read(self, states: Tensor, embedded: Tensor, memory: AgentMemory) -> Read:
        """What decoder states find.

        Args:
            states: s_t, [B, N, H].
            embedded: the words y_t that were read in those steps, [B, N, E].
        """
        M = memory.agents.shape[1]
        query = states.unsqueeze(1).expand(-1, M, -1, -1).flatten(0, 1)                          # [B M, N, H]
        rows = (memory.projected.flatten(0, 1), memory.tokens.flatten(0, 1))
        words = self.words(query, *rows, None)                                                   # [B M, N, I]
        contexts = torch.bmm(words.to(memory.states.dtype), memory.states.flatten(0, 1))
        words, contexts = words.unflatten(0, (-1, M)), contexts.unflatten(0, (-1, M))            # [B, M, N, I], [.. H]
        agents = self._choose(states, contexts, memory.agents)                                   # log g, [B, M, N]
        context = (agents.exp().to(contexts.dtype).unsqueeze(-1) * contexts).sum(1)              # [B, N, H]
        gate, share = self._point(states, embedded, contexts, context, agents)
        copying = (share.unsqueeze(-1) * words).transpose(1, 2).flatten(2)                       # [B, N, M I]
        return Read(context, agents.exp().transpose(1, 2), copying, gate)

    def _choose(self, states: Tensor, contexts: Tensor, real: Tensor) -> Tensor:
        """log g, [B, M, N]; -inf at padding agents."""
        if self.agent_score is None:
            return wide(contexts.new_zeros(contexts.shape[:-1]))
        inner = self.agent_context(contexts) + self.agent_query(states).unsqueeze(1)             # [B, M, N, H]
        scores = wide(self.agent_score(inner.tanh()).squeeze(-1))                                # [B, M, N]
        return scores.masked_fill(~real.unsqueeze(-1), float("-inf")).log_softmax(1)

    def _point(
        self, states: Tensor, embedded: Tensor, contexts: Tensor, context: Tensor, agents: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The logit of p [B, N], and each agent's share in what is copied, [B, M, N]."""
        step = (self.pointer_state(states) + self.pointer_word(embedded)).squeeze(-1)            # [B, N]
        if not self.multi_agent_pointer:
            return wide(self.pointer_context(context).squeeze(-1) + step), agents.exp()
        gates = wide(self.pointer_context(contexts).squeeze(-1) + step.unsqueeze(1))             # [B, M, N]
        generating = (agents + logsigmoid(gates)).logsumexp(1)  # log p
        copying = agents + logsigmoid(-gates)
        total = copying.logsumexp(1)  # log (1 - p)
        return generating - total, (copying - total.unsqueeze(1)).exp()

    def features(self, states: Tensor, context: Tensor, before: Tensor) -> Tensor:
        """What the output layer reads: tanh(W [s_t; c*_t; c*_{t-1}] + b), [..., H].

        Args:
            before: c*_{t-1}, 0 in the first step; used by contextual agent attention alone.
        """
        inner = self.combine(torch.cat([states, context.to(states.dtype)], -1))
        if self.combine_before is not None:
            inner = inner + self.combine_before(before)
        return self.dropout(inner.tanh())
