"""Train an RSTformer that is sharded over all processes and without: `torchrun sharded_training.py cpu FOLDER`."""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import register_fsdp_forward_method

from datamodules.batch import target_fields
from datamodules.rstformer import RSTformerBatch
from lightning_modules.decoding.options import DecodingOptions
from lightning_modules.rstformer.module import RSTformer
from lightning_modules.rstformer.options import InjectionOptions, LEDOptions
from lightning_modules.sharding import find_layers, shard

SIZES = {"hidden_size": 48, "heads": 3, "layers": 2, "inner_size": 64, "window": 16, "positions": 64}
ENCODER = LEDOptions(**SIZES, target_positions=48, attention="chunked")
DECODING = DecodingOptions(beam_size=2, min_length=1, max_length=40)
MODEL = {"encoder": ENCODER, "injection": InjectionOptions(formula="product"), "dropout": 0.0, "decoding": DECODING}
STEPS = 4


def make_batch(device: str):
    """Return two documents of random ids with random discourse."""
    g = torch.Generator().manual_seed(0)
    source, target = torch.randint(5, 50, (2, 60), generator=g), torch.randint(5, 50, (2, 12), generator=g)
    first = torch.zeros_like(source)
    first[:, 0] = 1
    ldd = torch.randint(0, 256, (2, 12, 23, 15), generator=g, dtype=torch.uint8)
    return RSTformerBatch(
        ids=["a", "b"], references=[[], []], source=source, source_mask=torch.ones_like(source), global_mask=first,
        token_edu=(torch.arange(60) // 5).expand(2, -1).contiguous(), ldd=ldd, gamma=torch.rand(2, 12, generator=g),
        **target_fields(target.tolist(), 1),
    ).to(device)  # fmt: skip


def train(model: torch.nn.Module, batch) -> list[float]:
    """Return the losses of some steps of Adam; the optimizer comes after sharding, which replaces the parameters."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model.loss_terms(batch)["nll"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(device: str, folder: Path) -> None:
    """Write the losses of both trainings and the number of elements of parameters that this process holds."""
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    if device == "cuda":
        torch.cuda.set_device(dist.get_rank())
    torch.manual_seed(0)
    plain = RSTformer(50, **MODEL)
    sharded = RSTformer(50, **MODEL)
    sharded.load_state_dict(plain.state_dict())
    plain.to(device)
    sharded.to(device)
    plain.tokenizer = sharded.tokenizer = SimpleNamespace(start=0, pad=1, stop=2)
    batch = make_batch(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    shard(sharded, find_layers(sharded), mesh)
    register_fsdp_forward_method(sharded, "loss_terms")
    held = sum(p.to_local().numel() for p in sharded.parameters())
    results = {"losses": train(plain, batch), "sharded_losses": train(sharded, batch), "sharded_elements": held}
    results["elements"] = sum(p.numel() for p in plain.parameters())
    if dist.get_rank() == 0:
        torch.save(results, folder / "results.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
