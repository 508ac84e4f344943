"""Loops of the how-to on two ranks: accelerate, and one in the style of torchtitan."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

import rankscope as rs

STEPS = 4


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2 * step + dist.get_rank())
    return torch.randn(4, 6, generator=generator)


def accelerate_ddp(folder: Path) -> str:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16")
    model = layers()
    average = torch.optim.swa_utils.AveragedModel(model)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    with (
        rs.Tracker(model, folder / "run", schedule=1, strict=True) as tracker,
        rs.Tracker(average, folder / "average", schedule=1, strict=True) as of_average,
    ):
        for number in range(2 * STEPS):
            inputs = batch(number)
            with accelerator.accumulate(model):
                loss = (model(inputs) - inputs).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    tracker.observe(loss=loss)
                    of_average.observe()
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                average.update_parameters(accelerator.unwrap_model(model))
        tracker.snapshot()
        of_average.snapshot()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), folder / "trained.pt")
        torch.save(average.module.state_dict(), folder / "averaged.pt")
    return type(model).__name__


def titan(folder: Path) -> str:
    """Train four steps, go back to the checkpoint of step 2, and train to step 5."""
    dist.init_process_group("gloo")
    for first, last in ((0, STEPS), (2, STEPS + 1)):
        model = layers()
        for block in model:
            block.compile(backend="aot_eager")
            fully_shard(block)
        fully_shard(model)
        if first:
            weights = get_model_state_dict(model)
            dcp.load(weights, checkpoint_id=folder / "checkpoint")
            set_model_state_dict(model, weights)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with rs.Tracker(
            model, folder / "run", schedule=1, resume=bool(first), strict=True
        ) as tracker:
            for step in range(first, last):
                if step == 2 and not first:
                    dcp.save(get_model_state_dict(model), checkpoint_id=folder / "checkpoint")
                for part in range(2):
                    model.set_requires_gradient_sync(part == 1)
                    inputs = batch(2 * step + part)
                    loss = (model(inputs) - inputs).square().mean() / 2
                    loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                tracker.observe(step, loss=2 * loss, grad_norm=norm)
                optimizer.step()
                optimizer.zero_grad()
            tracker.snapshot(last)
    return f"{tracker.committed}" if dist.get_rank() == 0 else f"{tracker.failed}"
