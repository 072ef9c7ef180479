"""Variance of the gradient of self-critical training, for each baseline and credit.

    python -m benchmarks.gradient_variance --seed 1

The model is that of the control of self-critical training (`control_self_critical.yaml`) after its steps of maximum
likelihood. The gradient of the self-critical term is sampled many times for one batch of documents. The table has its
variance (the sum of the variances of all weights) and the squared norm of the mean gradient.
"""

import logging
import warnings
from pathlib import Path

import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from torch import Tensor

from benchmarks.measuring import options, print_table
from callbacks import SelfCritical
from callbacks.control_rewards import PlantedAnswer
from experiments.run_folder import build
from lightning_modules.summarizer import Summarizer

CONFIG = Path(__file__).parents[1] / "experiments" / "configs" / "pointer_generator" / "control_self_critical.yaml"
ARMS = [
    ("greedy", "summary", 1), ("greedy", "summary", 4), ("leave_one_out", "summary", 2),
    ("leave_one_out", "summary", 4), ("leave_one_out", "reward_to_go", 4), ("leave_one_out", "myopic", 4),
]  # fmt: skip


def trained(seed: int) -> tuple[Summarizer, object]:
    """Return the control's model after its steps of maximum likelihood, and a batch of training documents."""
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    steps = config["trainer"]["callbacks"][0]["init_args"]["start_step"]
    seed_everything(seed, verbose=False)
    model, data = build(config)
    model.configure_optimizers = lambda: torch.optim.Adam(model.parameters(), **config["optimizer"]["init_args"])
    trainer = Trainer(
        accelerator="cpu", max_steps=steps, gradient_clip_val=2.0, limit_val_batches=0, use_distributed_sampler=False,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, data)
    model.log = lambda *arguments, **options: None
    return model, next(iter(data.train_dataloader()))


def gradients(model: Summarizer, batch: object, callback: SelfCritical, rounds: int) -> Tensor:
    """Return draws of the gradient of the self-critical term, [rounds, weights]."""
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    draws = []
    for _ in range(rounds):
        gradients = torch.autograd.grad(callback.term(model, batch), weights, allow_unused=True)
        filled = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, weights)]
        draws.append(torch.cat([part.flatten() for part in filled]))
    return torch.stack(draws).double()


def row(model: Summarizer, batch: object, rounds: int, baseline: str, credit: str, samples: int) -> list[str]:
    """Return a row of the table."""
    torch.manual_seed(0)
    callback = SelfCritical(PlantedAnswer(), samples=samples, baseline=baseline, credit=credit)
    draws = gradients(model, batch, callback, rounds)
    variance = draws.var(0).sum()
    mean = draws.mean(0).square().sum() - variance / rounds  # unbiased estimate
    return [baseline, credit, str(samples), f"{variance:.3g}", f"{mean:.3g}", f"{variance / mean:.2f}"]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    model, batch = trained(arguments.seed)
    head = ["baseline", "credit", "samples", "variance", "squared mean", "variance / squared mean"]
    print_table(head, (row(model, batch, arguments.rounds, *arm) for arm in ARMS))


if __name__ == "__main__":
    main()
