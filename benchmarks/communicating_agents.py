"""Time of communicating agents by their number, at equal total length.

    python -m benchmarks.communicating_agents

The agents are rows of one batch, so that with more agents, the LSTMs of the encoders have fewer steps with more rows. A
training step is loss, gradients, clipping and Adam; decoding is beam search. Times are medians over repetitions that
alternate between the numbers of agents, so that a busy machine slows all of them.
"""

from collections.abc import Callable

import torch

from benchmarks.measuring import alternate, machine, options, print_table, training_step, word_rows
from datamodules.communicating_agents import CommunicatingAgentsBatch, CommunicatingAgentsData
from datamodules.corpora.texts import Texts
from datamodules.text.vocabulary import Vocabulary
from lightning_modules.communicating_agents.module import CommunicatingAgents
from lightning_modules.decoding.options import DecodingOptions

V, B, S, T, BEAM = 50_000, 8, 800, 100, 5
AGENTS = (1, 3, 5)
ROWS = word_rows(B, V, S, T)


def make(agents: int, device: str) -> tuple[CommunicatingAgents, CommunicatingAgentsBatch]:
    """Return an untrained model with the sizes of the paper, and a batch of documents split between its agents."""
    torch.manual_seed(0)
    model = CommunicatingAgents(V, agents=agents, decoding=DecodingOptions(BEAM, min_length=T - 1, max_length=T))
    model.set_tokenizer(Vocabulary([f"w{i}" for i in range(V - 4)]))
    data = CommunicatingAgentsData(Texts([]), V, agents, max_source=S, max_target=T)
    return model.to(device), data.collate(ROWS).to(device)


def trainer(agents: int, device: str) -> Callable[[], object]:
    """Return a training step on a new model."""
    model, batch = make(agents, device)
    return training_step(model, lambda: model.loss_terms(batch)["nll"])


def searcher(agents: int, device: str) -> Callable[[], object]:
    """Return a function that runs beam search for all documents."""
    model, batch = make(agents, device)
    return lambda: model.generate(batch, model.decoding)


def main() -> None:
    parser = options(__doc__, repetitions=5)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    device, repetitions = arguments.device, arguments.repetitions
    medians = []
    for way, count in ((trainer, repetitions), (searcher, max(1, repetitions // 2))):
        seconds = alternate({str(agents): way(agents, device) for agents in AGENTS}, count, device=device)
        medians.append([times.medians()[0] for times in seconds.values()])
    sizes = f"{S} source words in all parts together, {T} target tokens, V = {V:,}, beam {BEAM}"
    print(f"Batch {B}, {sizes}; {machine(device)}.\n")
    head = ["agents", "training step, s", "to M = 1", "target tokens/s", "decoding, documents/s"]
    print_table(head, [
        [agents, f"{step:.2f}", f"{step / medians[0][0]:.2f}", f"{B * T / step:,.0f}", f"{B / search:.2f}"]
        for agents, step, search in zip(AGENTS, *medians)
    ])  # fmt: skip


if __name__ == "__main__":
    main()
