"""Small models before and after a fine-tuning, saved as checkpoints."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

STEPS = 40


def _trained(model: Any, tokens: Tensor, steps: int) -> None:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@cache
def gpt2() -> tuple[Any, Any]:
    """GPT-2 of two layers that learned one set of sequences, and then another."""
    import transformers

    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=48, vocab_size=64, n_positions=16, bos_token_id=0,
        eos_token_id=0, loss_type="ForCausalLM",
    )  # fmt: skip
    return _pair(lambda: transformers.GPT2LMHeadModel(config))


@cache
def llama(*, tied: bool) -> tuple[Any, Any]:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=64, tie_word_embeddings=tied, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return _pair(lambda: transformers.LlamaForCausalLM(config))


def _pair(make: Any) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randint(64, (16, 16), generator=generator) for _ in range(2))
    torch.manual_seed(0)
    base, tuned = make().eval(), make().eval()
    _trained(base, first, STEPS)
    tuned.load_state_dict(base.state_dict())
    _trained(tuned, second, STEPS)
    return base, tuned


def saved(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    return folder


class Mixed(nn.Module):
    """A model with layers that have no place among two factors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.lstm = nn.LSTM(8, 6)
        self.attention = nn.MultiheadAttention(6, 2)
        self.experts = nn.Module()
        self.experts.gate_up = nn.Parameter(torch.randn(4, 10, 6))  # type: ignore[assignment]
        self.scale = nn.Parameter(torch.ones(3))
        self.fc = nn.Linear(6, 5)


def mixed_checkpoints(folder: Path) -> tuple[Path, Path, dict[str, Tensor], dict[str, Tensor]]:
    torch.manual_seed(0)
    base = {k: v.clone().contiguous() for k, v in Mixed().state_dict().items()}
    tuned = {
        name: tensor + 0.1 * torch.randn(tensor.shape) if tensor.is_floating_point() else tensor
        for name, tensor in base.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in (("base", base), ("tuned", tuned)):
        save_file(tensors, folder / f"{name}.safetensors")
    return folder / "base.safetensors", folder / "tuned.safetensors", base, tuned
