"""Encoders of communicating agents: a local encoder of each part, then contextual layers that receive messages."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.communicating_agents.messages import Messages, make_messages
from lightning_modules.networks.dropout import Dropout
from lightning_modules.networks.recurrent import bidirectional


class Parts(NamedTuple):
    """Lengths and masks of M agents per document (padding agents last), each of which reads a part of I tokens."""

    lengths: Tensor  # tokens of each agent, 1 at padding agents, [B M], on the CPU
    last: Tensor  # position of each agent's last token, [B, M]
    tokens: Tensor  # True at tokens and at the first position of padding agents, [B, M, I]
    agents: Tensor  # False at padding agents, [B, M]

    @classmethod
    def of(cls, lengths: Tensor, width: int, device: torch.device) -> "Parts":
        """Build the masks of M parts padded to I = `width` tokens; lengths [B, M] (CPU), 0 for an agent without one."""
        device_lengths = lengths.to(device, non_blocking=True)
        nonzero = device_lengths.clamp_min(1)  # an LSTM and a softmax need at least one position
        return cls(
            lengths=lengths.clamp_min(1).flatten(),  # on the CPU, for `bidirectional`
            last=nonzero - 1,
            tokens=torch.arange(width, device=device) < nonzero.unsqueeze(-1),
            agents=device_lengths > 0,
        )


def last_states(states: Tensor, last: Tensor) -> Tensor:
    """Return the state at each agent's last token: [B, M, I, H], [B, M] -> [B, M, H]."""
    index = last[..., None, None].expand(-1, -1, 1, states.shape[-1])
    return states.gather(2, index).squeeze(2)


def initialize_lstm(lstm: nn.LSTM) -> None:
    """Initialize each gate of an LSTM: Xavier input and orthogonal recurrent weights, forget bias 1, other biases 0."""
    for name, parameter in lstm.named_parameters():
        gates = parameter.data.chunk(4)  # views of input gate, forget gate, cell and output gate
        if "bias" in name:
            parameter.data.zero_()
            gates[1].fill_(float("bias_ih" in name))  # 1 in one of the two biases that PyTorch adds, 0 in the other
            continue
        initialize = nn.init.xavier_uniform_ if "weight_ih" in name else nn.init.orthogonal_
        for gate in gates:
            initialize(gate)


class PartEncoder(nn.Module):
    """Bidirectional LSTM over the part of each agent, h_i = W [fw_i; bw_i]; all agents share its weights.

    The outputs of an LSTM are smaller than its inputs. W is initialized with a gain of 2, so that the states of all
    layers have similar magnitude: with PyTorch's default they shrink to 0.002 in three layers, and attention stays
    uniform for many steps.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        initialize_lstm(self.lstm)
        nn.init.xavier_uniform_(self.project.weight, gain=2.0)

    def forward(self, inputs: Tensor, parts: Parts) -> Tensor:
        """Encode [B, M, I, input_size] -> [B, M, I, H], 0 at padding; all agents run as one batch."""
        parts_as_batch = inputs.flatten(0, 1)                                                    # [B M, I, input_size]
        states = bidirectional(self.lstm, parts_as_batch, parts.lengths).states                  # [B M, I, 2 H]
        return self.project(states).unflatten(0, inputs.shape[:2])


class ContextualLayer(nn.Module):
    """Contextual encoder layer k, h^{k+1} = W_2 biLSTM(tanh(W_3 h^k + W_4 z^k)), with states h^k and messages z^k.

    The paper prints f(h, z) = v_1^T tanh(W_3 h + W_4 z), which is a scalar and cannot be the input of an LSTM, so v_1
    is omitted. All agents share W_3 and W_4; each layer has its own. Without communication z = 0.
    """

    def __init__(self, hidden_size: int, messages: Messages | None) -> None:
        super().__init__()
        self.own = nn.Linear(hidden_size, hidden_size, bias=False)  # W_3, for the agent's own states
        self.messages = make_messages(messages, hidden_size) if messages else None
        self.received = nn.Linear(hidden_size, hidden_size, bias=False) if messages else None  # W_4, for messages
        nn.init.xavier_uniform_(self.own.weight)
        if self.received is not None:
            nn.init.xavier_uniform_(self.received.weight)
        self.encoder = PartEncoder(hidden_size, hidden_size)  # biLSTM and W_2

    def forward(self, states: Tensor, parts: Parts) -> Tensor:
        """Return the next layer's states of all agents, [B, M, I, H] -> [B, M, I, H]."""
        inputs = self.own(states)
        if self.messages is not None:
            message = self.messages(last_states(states, parts.last), parts.agents)               # [B, M, H]
            inputs = inputs + self.received(message).unsqueeze(2)  # to all I positions
        return self.encoder(inputs.tanh(), parts)


class AgentsEncoder(nn.Module):
    """Local encoder and `layers` contextual layers of all agents, with dropout; `messages` None: no communication."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        layers: int = 2,
        messages: Messages | None = "mean",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.local = PartEncoder(input_size, hidden_size)
        self.layers = nn.ModuleList(ContextualLayer(hidden_size, messages) for _ in range(layers))
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, parts: Parts) -> Tensor:
        """Encode embedded words [B, M, I, E] -> states [B, M, I, H]."""
        states = self.dropout(self.local(embedded, parts))
        for layer in self.layers:
            states = self.dropout(layer(states, parts))
        return states
