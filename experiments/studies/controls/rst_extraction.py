"""Control of RSTformer's encoder: `python -m experiments.studies.controls.rst_extraction --out arms.json`.

Which sentence of a document of `PlantedTrees` is the target? Encoder and data are RSTformer's; in the place of the
decoder a linear layer scores the mean of each sentence's states. An arm is a set of arguments of model and data; all
have the same documents, steps and initial weights.

With one candidate tree there is no noise: the task can be solved. With several, the target itself is uncertain, and the
loss of the best possible answer is above 0. The matched controls are `permuted` and `other`, which have the values of
real distributions and say nothing about the document; the one of a distribution is its best tree (`one_best`).
"""

import functools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from jsonargparse import ArgumentParser
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from datamodules.corpora.corpus import as_document
from datamodules.rstformer import RSTformerBatch, RSTformerData
from experiments.studies.controls.tasks.planted_parser import PlantedParser
from experiments.studies.controls.tasks.planted_trees import RELATIONS, PlantedTrees, Task, target_of
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.rstformer.options import InjectionOptions, LEDOptions

VOCAB_SIZE = 1200
SIZES = LEDOptions(
    hidden_size=48,
    heads=4,
    layers=2,
    inner_size=96,
    window=64,
    positions=96,
    target_positions=128,
    init_std=0.1,
    attention="dense",  # the fastest for texts of 40 tokens on a CPU
)
CORPUS = {"sentences": 6, "words": 4, "pool": 32}
BATCH = 32


class Noise(NamedTuple):
    """Arguments of `PlantedParser`; without noise by default.

    Attributes:
        candidates: number of trees.
        agreement: probability that a tree has the shared target; None for unrelated trees.
        concentration: parameter of the Dirichlet distribution of the probabilities of trees; larger values make them
            more equal.
    """

    candidates: int = 1
    agreement: float | None = None
    concentration: float = 1.0


class Arm(NamedTuple):
    """One configuration of the control.

    Attributes:
        name: name of the arm.
        injection: fields of `InjectionOptions`; the `ablation` is the data's as well.
        task: task of the corpus.
        noise: noise of the parser.
        steps: number of training steps.
        lora_rank: rank of RST-LoRA adapters, 0 for none.
    """

    name: str
    injection: dict[str, Any]
    task: Task = "nucleus"
    noise: Noise = Noise()
    steps: int = 150
    lora_rank: int = 0


BEST = {"formula": "log_bias"}  # for the ablations
ARMS = [  # by default with a parser without noise, and the nucleus as the target
    Arm("plain", {"ablation": "no_discourse"}),
    *(Arm(name, {"formula": name}) for name in ("product", "one_plus", "bias", "log_bias")),
    Arm("wac", {"ablation": "wac"}),
    *(Arm(f"log_bias, {name}", BEST | {"ablation": name}) for name in ("ria", "permuted", "other", "no_labels")),
    Arm("log_bias, learned weights", BEST | {"learn_weights": True}),
    Arm("RST-LoRA", {}, lora_rank=8),
    Arm("RST-LoRA, permuted", {"ablation": "permuted"}, lora_rank=8),
    # relations and mixtures of trees are learned more slowly
    Arm("relation: log_bias", BEST, "relation", steps=450),
    Arm("relation: log_bias, no_labels", BEST | {"ablation": "no_labels"}, "relation", steps=450),
    Arm("relation: log_bias, permuted", BEST | {"ablation": "permuted"}, "relation", steps=450),
    Arm("2 candidates: distribution", BEST, noise=Noise(2), steps=450),
    Arm("2 candidates: best tree", BEST | {"ablation": "one_best"}, noise=Noise(2), steps=450),
    # 16 trees with similar probabilities, which agree on the target with a given probability
    *(
        Arm(f"16 candidates, agreement {level}: {name}", BEST | {"ablation": ablation}, noise=Noise(16, level, 8.0))
        for level in (1.0, 0.7, 0.4)
        for name, ablation in (("distribution", "none"), ("best tree", "one_best"))
    ),
    Arm("16 candidates, agreement 0.7: permuted", BEST | {"ablation": "permuted"}, noise=Noise(16, 0.7, 8.0)),
]


class Split(NamedTuple):
    """All documents of a split.

    Attributes:
        batch: batch of all documents.
        targets: index of the sentence that is the reference, [N].
        sentences: sentence of each token, -1 for other tokens, [N, T].
    """

    batch: RSTformerBatch
    targets: Tensor
    sentences: Tensor


class Outcome(NamedTuple):
    """Scores of an arm on the held-out documents.

    Attributes:
        accuracy: share of documents whose target has the highest score.
        loss: mean of -log P(target), nats.
    """

    accuracy: float
    loss: float


def read_split(data: RSTformerData, split: str) -> Split:
    """Return all documents of a split as one batch."""
    documents = [as_document(row) for row in data.documents(split)]
    features = data.features(split)
    rows = [row | {"id": document.id, "references": []} for row, document in zip(features, documents)]
    batch = data.collate(rows)
    targets = torch.tensor([target_of(document) for document in documents])
    # models without discourse are not told which sentence a token is in
    sentences = torch.full_like(batch.source, -1)
    for number, (row, document) in enumerate(zip(features, documents)):
        starts, stops = torch.tensor(row["starts"]), torch.tensor(row["ends"])
        sentence = torch.searchsorted(torch.tensor(document.sentence_ends), stops)
        sentences[number, : len(starts)] = torch.where(stops > starts, sentence, -1)
    return Split(batch, targets, sentences)


def data_of(
    ablation: str, task: Task, noise: Noise, cache: Path, train: int = 2000, held_out: int = 400
) -> RSTformerData:
    """Return the prepared data of an arm."""
    parser = None if ablation == "no_discourse" else PlantedParser(task, *noise)
    data = RSTformerData(
        PlantedTrees(task, train=train, held_out=held_out, **CORPUS), vocab_size=VOCAB_SIZE, parser=parser,
        ablation=ablation, max_source=SIZES.positions, half_width=16, cache_dir=cache,
    )  # fmt: skip
    data.prepare_data()
    return data


@functools.cache
def _splits(ablation: str, task: Task, noise: Noise, cache: Path, train: int, held_out: int) -> tuple[Split, Split]:
    """Return training and validation split, which the seeds of an arm, and many arms, share."""
    data = data_of(ablation, task, noise, cache, train, held_out)
    return read_split(data, "train"), read_split(data, "val")


def scores(model: RSTformer, output: nn.Linear, split: Split, rows: Tensor) -> Tensor:
    """Score each sentence of some documents, [B, E].

    Args:
        model: model whose encoder reads them.
        output: computes a score from a sentence's mean state.
        split: all documents.
        rows: indices of the documents to score, [B].
    """
    batch = RSTformerBatch(**{name: _select(value, rows) for name, value in vars(split.batch).items()})
    discourse = None if batch.ldd is None else model.discourse(batch)
    # Without global attention: only summaries need a global token, and each costs another pass.
    encoded = model.network.encode(batch.source, batch.source_mask, None, discourse)
    belongs = one_hot(split.sentences[rows] + 1)[..., 1:].float()                     # [B, T, E]
    means = belongs.transpose(1, 2) @ encoded.last_hidden_state / belongs.sum(1).clamp(min=1).unsqueeze(-1)
    return output(means).squeeze(-1)


def _select(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows]
    return [value[row] for row in rows.tolist()] if isinstance(value, list) else value


def _model(injection: dict[str, Any], lora_rank: int = 0) -> RSTformer:
    """Return an untrained model."""
    options = InjectionOptions(relations=len(RELATIONS), **injection)
    return RSTformer(VOCAB_SIZE, replace(SIZES, lora_rank=lora_rank), dropout=0.0, injection=options)


def train_arm(
    arm: Arm, seed: int, cache: Path, steps: int | None = None, train: int = 2000, held_out: int = 400
) -> Outcome:
    """Train an arm, for its number of steps unless `steps` is given; return what it reaches on the validation split.

    The adapters of RST-LoRA are trained in a frozen encoder, that of the plain arm after as many steps.
    """
    steps = steps or arm.steps
    ablation = arm.injection.get("ablation", "none")
    # `wac` and `no_labels` change what the model does with the document's own distribution
    ablation = "none" if ablation in ("wac", "no_labels") else ablation
    training, held_out_split = _splits(ablation, arm.task, arm.noise, cache, train, held_out)
    torch.manual_seed(seed)
    model = _model(arm.injection, arm.lora_rank)
    output = nn.Linear(SIZES.hidden_size, 1)
    if arm.lora_rank:
        plain = _model({"ablation": "no_discourse"})
        _fit(plain, nn.Linear(SIZES.hidden_size, 1), training, steps, seed)
        model.network.led.load_state_dict(_with_adapters(plain, model), strict=False)
    _fit(model, output, training, steps, seed)
    targets = held_out_split.targets
    with torch.no_grad():
        parts = torch.arange(len(targets)).split(250)
        predicted = torch.cat([scores(model, output, held_out_split, rows) for rows in parts])
    accuracy = (predicted.argmax(1) == targets).float().mean().item()
    return Outcome(accuracy, cross_entropy(predicted, targets).item())


def _fit(model: RSTformer, output: nn.Linear, split: Split, steps: int, seed: int) -> None:
    """Train encoder and output layer; parameters of discourse have a rate of their own."""
    rate, factor = 1e-3, 10.0
    injected = [p for p in model.network.injections.parameters() if p.requires_grad]
    others = [p for p in model.network.led.parameters() if p.requires_grad] + list(output.parameters())
    groups = [{"params": others, "lr": rate}]
    if injected:
        groups.append({"params": injected, "lr": rate * factor})
    optimizer = torch.optim.AdamW(groups)
    peaks = [group["lr"] for group in optimizer.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peaks, total_steps=steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(split.targets), (BATCH,), generator=generator)
        loss = cross_entropy(scores(model, output, split, rows), split.targets[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*others, *injected], 2.0)
        optimizer.step()
        schedule.step()


def _with_adapters(plain: RSTformer, model: RSTformer) -> dict[str, Tensor]:
    """Weights of a plain LED under the names that they have beside adapters."""
    names = {name.replace(".base_layer", ""): name for name in model.network.led.state_dict()}
    return {names[name]: value for name, value in plain.network.led.state_dict().items()}


def table(results: dict[str, list[Outcome]]) -> str:
    """Return a Markdown table: mean and range over seeds."""
    lines = ["| arm | accuracy | range | loss | range |", "|---|--:|---|--:|---|"]
    for name, outcomes in results.items():
        cells = []
        for values in zip(*outcomes):
            cells += [f"{statistics.mean(values):.3f}", f"{min(values):.3f} to {max(values):.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train arms with several seeds; those that the file has already are not trained again."""
    parser = ArgumentParser(prog="python -m experiments.studies.controls.rst_extraction", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file of the results")
    parser.add_argument("--arms", type=list[str], default=[], help="names of arms; by default all")
    parser.add_argument("--seeds", type=list[int], default=[1, 2, 3])
    parser.add_argument(
        "--steps", type=int | None, default=None, help="number of steps of 32 documents; by default that of the arm"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.arms) - {arm.name for arm in ARMS}:
        parser.error(f"no arm {sorted(unknown)[0]!r}; there are {', '.join(arm.name for arm in ARMS)}")
    out = options.out
    results = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    with TemporaryDirectory(prefix="precis-") as cache:
        for arm in [arm for arm in ARMS if not options.arms or arm.name in options.arms]:
            for seed in options.seeds:
                by_seed = results.setdefault(arm.name, {})
                if str(seed) not in by_seed:
                    by_seed[str(seed)] = train_arm(arm, seed, Path(cache), options.steps)
                    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
                    print(f"{arm.name}, seed {seed}: {by_seed[str(seed)]}", file=sys.stderr)
    outcomes = {name: [Outcome(*values) for values in by_seed.values()] for name, by_seed in results.items()}
    print(table(outcomes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
