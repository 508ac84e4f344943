"""Short trainings by Lightning, alone and on the two ranks of `ranks`."""

from pathlib import Path
from types import ModuleType
from typing import Any

import lightning.pytorch
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import rankscope as rs
from rankscope.integrations.lightning import RankCallback


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 4))


class Training:
    """What a LightningModule of either package does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = (self(batch[0]) - batch[0][:, :4]).square().mean()
        self.log("train/error", loss.sqrt())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Validation:
    """What a LightningModule does that is validated too."""

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("val_loss", (self(batch[0]) - batch[0][:, :4]).square().mean())


class Module(Training, lightning.pytorch.LightningModule):
    """A module of lightning."""


class Sharded(Module):
    """A module that shards itself, as Lightning's ModelParallelStrategy asks for."""

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        for layer in (self.layers[0], self.layers[3]):
            fully_shard(layer, mesh=mesh)
        fully_shard(self.layers, mesh=mesh)


def loader() -> DataLoader:
    inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs), batch_size=2)


def trainer(
    folder: Path, *callbacks: Any, package: ModuleType = lightning.pytorch, **options: Any
) -> Any:
    return package.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_steps": 6,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": folder,
            "callbacks": list(callbacks),
            **options,
        }
    )


def ddp(folder: Path) -> str:
    return _report(folder, Module(), strategy="ddp")


def fsdp2(folder: Path) -> str:
    strategy = lightning.pytorch.strategies.ModelParallelStrategy(
        data_parallel_size=2, tensor_parallel_size=1, save_distributed_checkpoint=False
    )
    return _report(folder, Sharded(), strategy=strategy)


class Wait(lightning.pytorch.Callback):
    """Waits for the tracker of a callback, so that a test knows when its gate has seen a step."""

    def __init__(self, callback: RankCallback) -> None:
        self.callback = callback

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.callback.tracker.flush()


def _report(folder: Path, module: Module, **options: Any) -> str:
    """Train with a gate that only the first rank sees to be met."""
    gate = rs.StopIf("frobenius_norm > 0", of="change_singular_values")
    callback = RankCallback(folder / "run", schedule=[0, 1, 4], strict=True, gates=gate)
    training = trainer(folder, Wait(callback), callback, devices=2, **options)
    training.fit(module, loader())
    return f"{training.global_step} steps"
