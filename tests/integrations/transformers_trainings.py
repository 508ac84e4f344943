"""Short trainings by transformers' Trainer, alone and on the two ranks of `ranks`."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

import rankscope as rs
from rankscope.integrations.transformers import RankCallback


class Tokens(Dataset):
    """Sixteen sequences that follow from their number."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (index + 1)) % 11
        return {"input_ids": tokens, "labels": tokens}


def llama() -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    return LlamaForCausalLM(config)


def trainer(
    folder: Path, *callbacks: Any, model: nn.Module | None = None, **arguments: Any
) -> Trainer:
    options = {
        "max_steps": 6,
        "per_device_train_batch_size": 2,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        **arguments,
    }
    return Trainer(
        llama() if model is None else model,
        TrainingArguments(output_dir=str(folder / "out"), **options),
        train_dataset=Tokens(),
        eval_dataset=Tokens(),
        callbacks=list(callbacks),
    )


def ddp(folder: Path) -> str:
    return _report(folder, ddp_find_unused_parameters=False)


def fsdp2(folder: Path) -> str:
    """Shard the model while it is loaded, as transformers does without accelerate's help."""
    from transformers.distributed import DistributedConfig

    model = LlamaForCausalLM.from_pretrained(
        folder / "model", distributed_config=DistributedConfig(fsdp_size=2)
    )
    assert any(isinstance(parameter, DTensor) for parameter in model.parameters())
    return _report(folder, model=model)


class Wait(TrainerCallback):
    """Waits for the tracker of a callback, so that a test knows when its gate has seen a step."""

    def __init__(self, callback: RankCallback) -> None:
        self.callback = callback

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.callback.tracker.flush()


def _report(folder: Path, **options: Any) -> str:
    """Train with a gate that only the first rank sees to be met."""
    gate = rs.StopIf("frobenius_norm > 0", of="change_singular_values")
    callback = RankCallback(folder / "run", schedule=[0, 1, 4], strict=True, gates=gate)
    training = trainer(folder, Wait(callback), callback, **options)
    training.train()
    return f"{training.state.global_step} steps"
