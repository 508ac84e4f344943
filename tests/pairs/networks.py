"""Small networks that declare no pairs, and inputs for them."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from rankscope.pairs import Pairs

IMAGE = torch.linspace(-1, 1, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)
ROWS = torch.linspace(-1, 1, 8).reshape(2, 4)
SEQUENCE = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])


def names(pairs: Pairs) -> list[str]:
    """Return the names of pairs, in order."""
    return [pair.name for pair in pairs]


class Written(nn.Module):
    """Named layers, and a forward pass given as a function of the module and its inputs."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.written = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Any) -> Any:
        return self.written(self, *inputs)


class Block(nn.Module):
    """A residual block; the shortcut is a projection where the width changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.a, self.b, self.c = Block(4, 4), Block(4, 8), Block(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.c(self.b(self.a(F.relu(self.stem(x)))))
        return self.head(x.mean((2, 3)))


def gpt2() -> GPT2LMHeadModel:
    sizes = dict(vocab_size=9, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


class Tagger(nn.Module):
    """Embedding, recurrent layers, one label per token."""

    def __init__(self, recurrent: nn.RNNBase) -> None:
        super().__init__()
        self.tok = nn.Embedding(11, recurrent.input_size)
        self.lstm = recurrent
        width = recurrent.proj_size or recurrent.hidden_size
        self.out = nn.Linear(2 * width if recurrent.bidirectional else width, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.lstm(self.tok(tokens))[0])


class UNet(nn.Module):
    """UNet of two levels with a concatenated skip at each, conditioned on a time."""

    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(1, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.embed, self.dense = nn.Linear(5, 7), nn.Linear(7, 6)
        self.middle = nn.Conv2d(6, 6, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(12, 5, 2, stride=2)
        self.norm = nn.GroupNorm(3, 9)
        self.up1 = nn.ConvTranspose2d(9, 1, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        embedded = F.silu(self.embed(time))
        fine = F.relu(self.down1(x))
        coarse = F.relu(self.down2(fine) + self.dense(embedded)[..., None, None])
        middle = F.relu(self.middle(coarse))
        up = self.up2(torch.cat([middle, coarse], 1))
        return self.up1(F.relu(self.norm(torch.cat([up, fine], 1))))
