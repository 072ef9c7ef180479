"""Decoder of communicating agents: attention to words within each agent, attention to agents, and a pointer."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lightning_modules.communicating_agents.encoder import initialize_lstm
from lightning_modules.networks.attention import CoverageAttention
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.output_layer import upcast_half
from lightning_modules.networks.recurrent import one_layer_lstm


class AgentMemory(NamedTuple):
    """Encoder outputs that the decoder attends to, of B documents with M agents (parts) of I tokens."""

    states: Tensor  # [B, M, I, H]
    projected: Tensor  # W_5 h (word attention), [B, M, I, H]
    tokens: Tensor  # True at tokens, and at the first position of padding agents, [B, M, I]
    agents: Tensor  # False at padding agents, [B, M]


class Attended(NamedTuple):
    """Results of attention to documents with M agents (parts) of I tokens, for N decoder states of each document."""

    context: Tensor  # c*, the states weighted by attention to words and agents, [B, N, H]
    agents: Tensor  # agent attention g, [B, N, M]
    copying: Tensor  # distribution over the positions to copy from, [B, N, M I]
    gate: Tensor  # logit of the probability to generate instead of copying, [B, N]


class AgentsDecoder(nn.Module):
    """One-layer LSTM decoder (state s_t, input word y_t) without input feeding; attends to h_{a,i}, word i of agent a.

        l_a = softmax(v_2^T tanh(W_5 h_a + W_6 s_t + b_1)),   c_a = sum_i l_{a,i} h_{a,i}
        g   = softmax(v_3^T tanh(W_7 c_a + W_8 s_t + b_2)),   c*  = sum_a g_a c_a
        p_a = sigmoid(v_5 c_a + v_6 s_t + v_7 y_t + b)

    The multi-agent pointer is P(w) = sum_a g_a (p_a P_voc(w) + (1 - p_a) u_a(w)), where u_a(w) sums l_{a,i} over the
    positions i of word w. As P_voc is the same for all agents, this is p P_voc + (1 - p) u with p = sum_a g_a p_a and
    u = sum_a g_a (1 - p_a) / (1 - p) u_a. The plain pointer computes one p from c*, and u = sum_a g_a u_a.

    For M = 1 agent, g = 1. With `contextual` agent attention, P_voc is computed from [s_t; c*_t; c*_{t-1}], else from
    [s_t; c*_t]. The matrix of c*_{t-1} is zero at first, so that training can continue from a model without it.
    """

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        agent_attention: bool,
        multi_agent_pointer: bool,
        contextual: bool,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        E, H = embedding_size, hidden_size
        self.lstm = nn.LSTM(E, H, batch_first=True)
        initialize_lstm(self.lstm)
        self.words = CoverageAttention(H, H, H, coverage=False)  # v_2, W_5, W_6, b_1
        self.agent_context = nn.Linear(H, H, bias=False) if agent_attention else None  # W_7
        self.agent_query = nn.Linear(H, H) if agent_attention else None  # W_8, b_2
        self.agent_score = nn.Linear(H, 1, bias=False) if agent_attention else None  # v_3
        self.multi_agent_pointer = multi_agent_pointer
        self.pointer_context = nn.Linear(H, 1, bias=False)  # v_5
        self.pointer_state = nn.Linear(H, 1, bias=False)  # v_6
        self.pointer_word = nn.Linear(E, 1)  # v_7, b
        self.combine = nn.Linear(2 * H, H)  # of s_t and c*_t, for P_voc
        self.combine_before = nn.Linear(H, H, bias=False) if contextual else None  # of c*_{t-1}
        if contextual:
            nn.init.zeros_(self.combine_before.weight)  # at first without effect, see above
        self.dropout = Dropout(dropout)

    def run_lstm(self, embedded: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return states s_t [N, T, H] for embedded words [N, T, E], and the last hidden and cell state, [N, H] each."""
        initial = tuple(state.unsqueeze(0).to(embedded.dtype).contiguous() for state in (hidden, cell))
        states, hidden, cell = one_layer_lstm(self.lstm, embedded, initial)
        return states, hidden.squeeze(0), cell.squeeze(0)

    def attend(self, states: Tensor, embedded: Tensor, memory: AgentMemory) -> Attended:
        """Attend to words, then to agents, from N states s_t [B, N, H] with embedded input words y_t [B, N, E]."""
        M = memory.agents.shape[1]
        query = states.unsqueeze(1).expand(-1, M, -1, -1).flatten(0, 1)                          # [B M, N, H]
        # word attention l_a within each agent (`tokens` is the mask), and its context c_a, for B M agents as one batch
        weights = self.words(query, memory.projected.flatten(0, 1), memory.tokens.flatten(0, 1), coverage=None)
        contexts = torch.bmm(weights.to(memory.states.dtype), memory.states.flatten(0, 1))       # c_a, [B M, N, H]
        weights = weights.unflatten(0, (-1, M))                                                  # l_a, [B, M, N, I]
        contexts = contexts.unflatten(0, (-1, M))                                                # [B, M, N, H]
        # agent attention g (`memory.agents` is the mask), and the context c* of all agents
        log_agents = self._agent_log_attention(states, contexts, memory.agents)                  # [B, M, N]
        agents = log_agents.exp()                                                                # g
        context = (agents.to(contexts.dtype).unsqueeze(-1) * contexts).sum(1)                    # [B, N, H]
        # logit of p, [B, N], and the weight of each agent in the copy distribution u, [B, M, N]
        gate, copy_shares = self._pointer(states, embedded, contexts, context, log_agents)
        copying = (copy_shares.unsqueeze(-1) * weights).transpose(1, 2).flatten(2)               # u, [B, N, M I]
        return Attended(context, agents.transpose(1, 2), copying, gate)

    def _agent_log_attention(self, states: Tensor, contexts: Tensor, agent_mask: Tensor) -> Tensor:
        """Return log g (agent attention) of N decoder states in float32 or 64, [B, M, N]; -inf at padding agents."""
        if self.agent_score is None:  # M = 1: log g = 0
            return upcast_half(contexts.new_zeros(contexts.shape[:-1]))
        inner = self.agent_context(contexts) + self.agent_query(states).unsqueeze(1)             # [B, M, N, H]
        scores = upcast_half(self.agent_score(inner.tanh()).squeeze(-1))                         # [B, M, N]
        return scores.masked_fill(~agent_mask.unsqueeze(-1), float("-inf")).log_softmax(1)

    def _pointer(
        self, states: Tensor, embedded: Tensor, contexts: Tensor, context: Tensor, log_agents: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the logit of p [B, N], and each agent's weight in u, [B, M, N], from c_a, c* and log g of `attend`."""
        shared = (self.pointer_state(states) + self.pointer_word(embedded)).squeeze(-1)  # v_6 s_t + v_7 y_t + b, [B, N]
        if not self.multi_agent_pointer:
            return upcast_half(self.pointer_context(context).squeeze(-1) + shared), log_agents.exp()
        gates = upcast_half(self.pointer_context(contexts).squeeze(-1) + shared.unsqueeze(1))  # logit of p_a, [B, M, N]
        log_generate = (log_agents + logsigmoid(gates)).logsumexp(1)  # log p, [B, N]; p itself may round to 0 or 1
        log_copy = log_agents + logsigmoid(-gates)  # log g_a (1 - p_a), [B, M, N]
        log_copy_total = log_copy.logsumexp(1)  # log (1 - p), [B, N]
        return log_generate - log_copy_total, (log_copy - log_copy_total.unsqueeze(1)).exp()  # log p - log (1 - p)

    def features(self, states: Tensor, context: Tensor, previous_context: Tensor) -> Tensor:
        """Return the input of the output layer, tanh(W [s_t; c*_t; c*_{t-1}] + b), [..., H] like all arguments.

        c*_{t-1} is 0 in the first step; only contextual agent attention reads it.
        """
        inner = self.combine(torch.cat([states, context.to(states.dtype)], -1))  # W for s_t and c*_t, and b
        if self.combine_before is not None:
            inner = inner + self.combine_before(previous_context)  # W for c*_{t-1}
        return self.dropout(inner.tanh())
