"""Properties that all networks share: seeds, parameters, pairs, shown matrices, refusals."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rankscope.lab.models.lstm import BiLstm, BiLstmConfig
from rankscope.lab.models.mlp import Mlp, MlpConfig
from rankscope.lab.models.modular import ModularConfig, ModularTransformer
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.models.unet import Unet, UnetConfig
from rankscope.lab.models.vgg import VggConfig
from rankscope.lab.models.vit import Vit, VitConfig
from rankscope.matrices import views
from rankscope.pairs import Pair, discover_pairs

LSTM = BiLstmConfig(features=3, hidden=4, layers=2, characters=5)
MLP = MlpConfig(inputs=12, hidden=5)
MODULAR = ModularConfig(p=5, width=12, heads=3, hidden=7)
TRANSFORMER = TransformerConfig(layers=2, width=12, heads=3, context=5, vocabulary=7, hidden=10)
UNET = UnetConfig((8, 8, 16, 16), time=6, groups=4, padding=1)
VGG = VggConfig(channels=1, classes=4, width=0.0625, pools=(1, 2, 3))
VIT = VitConfig((4, 6), 2, patch=2, depth=2, heads=3, width=10, hidden=7, head_width=4, classes=5)
BASE_16 = VitConfig(
    224, 3, 16, 12, 12, 768, 3072, head_width=64, classes=1000, token_std=0.02, qkv_bias=True
)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "config", [LSTM, MLP, MODULAR, TRANSFORMER, UNET, VGG, VIT], ids=lambda c: type(c).__name__
)
def test_weights_come_from_the_seed_alone(config: Any) -> None:
    before = torch.get_rng_state()
    first, same, other = (config.build(seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], same[name]) for name in first)
    changed = [name for name in first if not torch.equal(first[name], other[name])]
    assert {name for name in first if first[name].ndim > 1} <= set(changed)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LSTM, "lstm.l0.ih"),
        (MLP, "layers.1"),
        (MODULAR, "block.w1"),
        *((replace(TRANSFORMER, layers=n), f"blocks.{n // 2}.w1") for n in (1, 2, 12)),
        (UNET, "conv3"),
        (VGG, "conv7"),
        *((replace(VIT, depth=n), f"blocks.{n // 2}.fc1") for n in (1, 6, 12)),
    ],
)
def test_the_shown_matrix_and_pair_are_in_the_middle(config: Any, expected: str) -> None:
    model = config.build(0)
    matrix, name = model.shown()
    (pair,) = [pair for pair in model.alignment_pairs() if pair.name == name]
    assert matrix == pair.earlier == expected and matrix in views(model)


@pytest.mark.parametrize(
    ("config", "inputs", "count"),
    [
        # By direction and gate: W_ih-W_hh of 2 layers, two kinds upwards, two to the output.
        (LSTM, noise(2, 7, 3), 2 * 4 * (2 + 2 + 2)),
        (MLP, noise(4, 3, 2, 2), 3),
        (MODULAR, torch.tensor([[0, 4, 5], [2, 2, 5], [3, 1, 5]]), 3 + 5),
        (TRANSFORMER, torch.tensor([[3, 1, 6, 0, 2], [5, 5, 4, 1, 0]]), 2 * (3 + 3) + 3),
        (VGG, noise(2, 1, 8, 8), 13),
        (replace(VIT, depth=1), noise(3, 2, 4, 6), 9 + 1),
        (replace(VIT, depth=3), noise(3, 2, 4, 6), 3 * 9 + 1),
    ],
)
def test_declared_pairs_are_those_of_the_forward_pass(
    config: Any, inputs: Tensor, count: int
) -> None:
    model = config.build(0)
    declared = model.alignment_pairs()
    # The paper pairs no two directions of an LSTM; all other pairs are declared.
    discovered = [pair for pair in discover_pairs(model, inputs) if not joins_directions(pair)]
    assert {key(pair) for pair in declared} == {key(pair) for pair in discovered}
    assert len(declared) == len(discovered) == count
    if config in (LSTM, MLP, VGG):  # attention has names of its own for kinds
        assert {(p.name, p.kind) for p in declared} == {(p.name, p.kind) for p in discovered}


def joins_directions(pair: Pair) -> bool:
    later = pair.later.startswith("lstm.") and ".reverse." in pair.later
    return pair.later != "output" and (".reverse." in pair.earlier) != later


def key(pair: Pair) -> tuple[object, ...]:
    return pair.name, pair.earlier_side, pair.later_side, pair.earlier_cut, pair.later_cut


def lstm_parameters(features: int = 40, hidden: int = 256, characters: int = 29) -> int:
    first, above = (4 * hidden * (n + hidden + 2) for n in (features, 2 * hidden))
    return 2 * (first + 3 * above) + characters * (2 * hidden + 1)


def mlp_parameters() -> int:
    return sum((n + 1) * m for n, m in pairwise((3072, 256, 256, 256, 10)))


def modular_parameters(p: int = 113, width: int = 128, hidden: int = 512) -> int:
    embedding, output = (p + 1) * width, (p + 1) * (width + 1)
    mlp = hidden * (width + 1) + width * (hidden + 1)
    return embedding + output + 4 * width * (width + 1) + mlp


def unet_parameters(time: int = 512) -> int:
    filters = 2 * 9 * sum(a * b for a, b in pairwise((1, 64, 128, 256, 512))) + 1
    conditions = sum(c * (time + 1) + 2 * c for c in (64, 128, 256, 512, 256, 128, 64))
    return filters + conditions + time * (time + 1)


def vit_parameters() -> int:
    block = 4 * 512 * 1024 + 512 + 2 * (512 * 512 + 512) + 2 * 2 * 512
    return 6 * block + (3 * 16 + 1) * 512 + 512 + 65 * 512 + 2 * 512 + (512 + 1) * 10


@pytest.mark.parametrize(
    ("network", "config", "expected"),
    [
        (BiLstm, BiLstmConfig(), lstm_parameters()),
        (Mlp, MlpConfig(), mlp_parameters()),
        (ModularTransformer, ModularConfig(), modular_parameters()),
        (Unet, UnetConfig(), unet_parameters()),
        (Vit, VitConfig(), vit_parameters()),
        (Vit, BASE_16, 86_567_656),  # as torchvision and timm publish
    ],
)
def test_the_papers_networks_have_their_parameters(
    network: Any, config: object, expected: int
) -> None:
    with torch.device("meta"):
        model: nn.Module = network(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(
    ("config", "block", "bounds"),
    [
        (
            TransformerConfig(1, 64, 4, 5, vocabulary=100, hidden=100),
            "blocks.0",
            {"w2.bias": 1 / 10, "norm1.bias": 0.0},
        ),
        (ModularConfig(p=50, width=64, heads=4, hidden=100), "block", {}),
    ],
)
def test_initial_weights_of_transformers_have_the_documented_bounds(
    config: Any, block: str, bounds: dict[str, float]
) -> None:
    model = config.build(0)
    bounds = bounds | {
        "attn.qkv.weight": math.sqrt(6 / (64 + 192)),
        "attn.qkv.bias": 0.0,
        "attn.out_proj.weight": 1 / 8,
        "attn.out_proj.bias": 0.0,
        "w1.weight": 1 / 8,
        "w2.weight": 1 / 10,
    }
    outside = {"embedding.weight": 0.1, "output.weight": 0.1, "output.bias": 0.0}
    for name, bound in {**outside, **{f"{block}.{n}": b for n, b in bounds.items()}}.items():
        assert 0.9 * bound <= model.get_parameter(name).abs().max().item() <= bound + 1e-6, name


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (LSTM, {"layers": 1}, "2 or more layers"),
        (MLP, {"layers": 2}, "3 or more layers"),
        (MODULAR, {"p": 0}, "at least 1"),
        (MODULAR, {"width": 10, "heads": 4}, "4 heads"),
        (TRANSFORMER, {"width": 15}, "even and a multiple of the 3 heads, got 15"),
        (TRANSFORMER, {"layers": 0}, "at least 1"),
        (UNET, {"channels": (8,)}, "2 levels"),
        (UNET, {"time": 5}, "even time"),
        (UNET, {"groups": 5}, "multiples of the norms' groups"),
        (VGG, {"pools": (0,)}, "from 1 to 5"),
        (VGG, {"width": 0.01}, "64 x width"),
        (VGG, {"classes": 0}, "classes"),
        (VIT, {"heads": 0}, "at least 1"),
        (VIT, {"image": (4, 5)}, "patches of 2 x 2"),
        (VIT, {"init_scale": 0.0}, "init_scale must be above 0, got 0$"),
        (VIT, {"token_std": -1.0}, "token_std must not be below 0, got -1$"),
    ],
)
def test_impossible_sizes_are_named(config: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(config, **options)
