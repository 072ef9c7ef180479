"""The time that communicating agents take, by their number, at equal total length.

    python benchmarks/communicating_agents.py

The agents are rows of one batch, so that more agents are fewer steps of the encoders' LSTMs with more rows each. A
training step is loss, gradients, clipping and Adam; decoding is beam search. Times are medians over repetitions that
alternate between the numbers of agents, so that a busy machine slows all of them.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch

from datamodules.communicating_agents import CommunicatingAgentsBatch, CommunicatingAgentsData
from datamodules.corpora.texts import Texts
from datamodules.text.vocabulary import STOP, Vocabulary
from lightning_modules.communicating_agents.module import CommunicatingAgents
from lightning_modules.decoding.options import DecodingOptions

V, B, S, T, BEAM = 50_000, 8, 800, 100, 5
AGENTS = (1, 3, 5)


def make_rows() -> list[dict]:
    """Features of documents of S words drawn by Zipf's law, one in twenty its own; summaries of T tokens, half of them
    from the document."""
    generator = torch.Generator().manual_seed(0)
    frequencies = 1 / torch.arange(4, V)
    rows = []
    for number in range(B):
        source = 4 + torch.multinomial(frequencies, S, replacement=True, generator=generator)
        own = torch.rand(S, generator=generator) < 0.05
        source = torch.where(own, V + own.cumsum(0) - 1, source)
        target = 4 + torch.multinomial(frequencies, T, replacement=True, generator=generator)
        target = torch.where(torch.rand(T, generator=generator) < 0.5, source[:T], target)
        target[-1] = STOP
        row = {"id": str(number), "references": [], "source": source.tolist(), "paragraphs": [S], "length": S}
        rows.append(row | {"added": [f"own{k}" for k in range(int(own.sum()))], "target": target.tolist()})
    return rows


def make_batch(rows: list[dict], agents: int, device: str) -> CommunicatingAgentsBatch:
    """The rows dealt out to so many agents."""
    data = CommunicatingAgentsData(Texts([]), V, agents, max_source=S, max_target=T)
    return data.collate(rows).to(device)


def make_model(agents: int, device: str) -> CommunicatingAgents:
    """A model of the paper's size, before training."""
    torch.manual_seed(0)
    model = CommunicatingAgents(V, agents=agents, decoding=DecodingOptions(BEAM, min_length=T - 1, max_length=T))
    model.use_text(Vocabulary([f"w{i}" for i in range(V - 4)]))
    return model.to(device)


def trainer(agents: int, rows: list[dict], device: str) -> Callable[[], object]:
    """A training step on a model of its own."""
    model, batch = make_model(agents, device), make_batch(rows, agents, device)
    optimizer = model.configure_optimizers()

    def step() -> None:
        optimizer.zero_grad()
        model.loss_terms(batch)["nll"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()

    return step


def searcher(agents: int, rows: list[dict], device: str) -> Callable[[], object]:
    """A beam search for all documents."""
    model, batch = make_model(agents, device), make_batch(rows, agents, device)
    return lambda: model.generate(batch, model.decoding)


def medians(make: Callable[..., Callable[[], object]], repetitions: int, device: str) -> list[float]:
    """Seconds for each number of agents, after one repetition to warm up."""
    rows = make_rows()
    ways = [make(agents, rows, device) for agents in AGENTS]
    seconds: list[list[float]] = [[] for _ in ways]
    for repetition in range(repetitions + 1):
        for times, run in zip(seconds, ways):
            start = time.perf_counter()
            run()
            if device != "cpu":
                torch.cuda.synchronize()
            if repetition:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5, help="of training steps; of decoding half as many")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    training = medians(trainer, arguments.repetitions, arguments.device)
    decoding = medians(searcher, max(1, arguments.repetitions // 2), arguments.device)
    on = f"{torch.get_num_threads()} threads of {platform.processor() or platform.machine()}"
    on = on if arguments.device == "cpu" else torch.cuda.get_device_name()
    print(
        f"Batch {B}, {S} source words in all parts together, {T} target tokens, V = {V:,}, beam {BEAM}; {on}, "
        f"torch {torch.__version__}.\n"
    )
    print("| agents | training step, s | to M = 1 | target tokens/s | decoding, documents/s |\n|---|---|---|---|---|")
    for agents, step, search in zip(AGENTS, training, decoding):
        print(f"| {agents} | {step:.2f} | {step / training[0]:.2f} | {B * T / step:,.0f} | {B / search:.2f} |")


if __name__ == "__main__":
    main()
