"""The encoders of communicating agents: each reads its part of the document, then reads on with what the others say."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_modules.communicating_agents.messages import Messages, make_messages
from lightning_modules.networks.recurrent import bidirectional


class Parts(NamedTuple):
    """Which tokens and agents of a batch are real."""

    lengths: Tensor  # for the encoders: tokens of each agent, 1 at padding agents, [B M], on the CPU
    last: Tensor  # position of each agent's last token, [B, M]
    tokens: Tensor  # True at real tokens and at the first position of padding agents, [B, M, I]
    agents: Tensor  # False at padding agents, [B, M]

    @classmethod
    def of(cls, lengths: Tensor, width: int, device: torch.device) -> "Parts":
        """From the tokens of each agent, [B, M] on the CPU, 0 for padding agents; `width` is I."""
        filled = lengths.clamp_min(1)  # neither an LSTM nor a softmax can do without a position
        here = torch.stack([filled, lengths]).to(device, non_blocking=True)
        return cls(
            lengths=filled.flatten(),
            last=here[0] - 1,
            tokens=torch.arange(width, device=device) < here[0].unsqueeze(-1),
            agents=here[1] > 0,
        )


def last_states(states: Tensor, last: Tensor) -> Tensor:
    """The state at each agent's last token: [B, M, I, H], [B, M] -> [B, M, H]."""
    index = last[..., None, None].expand(-1, -1, 1, states.shape[-1])
    return states.gather(2, index).squeeze(2)


def initialise_lstm(lstm: nn.LSTM) -> None:
    """Xavier for what each gate reads, orthogonal recurrences, a forget bias of 1."""
    for name, parameter in lstm.named_parameters():
        gates = parameter.data.chunk(4)  # i, f, g, o
        if "bias" in name:
            parameter.data.zero_()
            gates[1].fill_(float("bias_ih" in name))
        else:
            for gate in gates:
                (nn.init.xavier_uniform_ if "weight_ih" in name else nn.init.orthogonal_)(gate)


class PartEncoder(nn.Module):
    """h_i = W [fw_i; bw_i] of a bidirectional LSTM over each part; all agents share it.

    LSTMs give less than they get. W starts twice as large as Xavier's, so that the states of all layers are of one
    size: from PyTorch's own start they fade to 0.002 in three layers, and attention stays even for long.

    Args:
        input_size: width of the inputs.
        hidden_size: H, of each direction and of the output.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        initialise_lstm(self.lstm)
        nn.init.xavier_uniform_(self.project.weight, gain=2.0)

    def forward(self, inputs: Tensor, parts: Parts) -> Tensor:
        """[B, M, I, input_size] -> [B, M, I, H], 0 behind each part; the agents are rows of one batch."""
        rows = inputs.flatten(0, 1)                                                              # [B M, I, D]
        states = bidirectional(self.lstm, rows, parts.lengths).states
        return self.project(states).unflatten(0, inputs.shape[:2])


class ContextualLayer(nn.Module):
    """h^{k+1} = W_2 biLSTM(tanh(W_3 h^k + W_4 z^k)), z^k the messages.

    The paper prints f(h, z) = v_1^T tanh(W_3 h + W_4 z), which is a scalar and cannot be the LSTM's input: v_1 is left
    out. W_3 and W_4 are shared by all agents; each layer has its own.

    Args:
        hidden_size: H.
        messages: their kind; None for agents that do not hear each other, z = 0.
    """

    def __init__(self, hidden_size: int, messages: Messages | None) -> None:
        super().__init__()
        self.own = nn.Linear(hidden_size, hidden_size, bias=False)
        self.messages = make_messages(messages, hidden_size) if messages else None
        self.received = nn.Linear(hidden_size, hidden_size, bias=False) if messages else None
        for layer in (self.own, self.received):
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight)
        self.encoder = PartEncoder(hidden_size, hidden_size)

    def forward(self, states: Tensor, parts: Parts) -> Tensor:
        """[B, M, I, H] -> [B, M, I, H]."""
        inputs = self.own(states)
        if self.messages is not None:
            message = self.messages(last_states(states, parts.last), parts.agents)               # [B, M, H]
            inputs = inputs + self.received(message).unsqueeze(2)
        return self.encoder(inputs.tanh(), parts)


class AgentsEncoder(nn.Module):
    """The local encoder and the contextual layers of all agents.

    Args:
        input_size: E.
        hidden_size: H.
        layers: contextual layers K; 2 in the paper.
        messages: their kind; None without communication.
        dropout: on the states of each layer.
    """

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
        self.dropout = nn.Dropout(dropout)

    def forward(self, embedded: Tensor, parts: Parts) -> Tensor:
        """Embedded words [B, M, I, E] -> states [B, M, I, H]."""
        states = self.dropout(self.local(embedded, parts))
        for layer in self.layers:
            states = self.dropout(layer(states, parts))
        return states
