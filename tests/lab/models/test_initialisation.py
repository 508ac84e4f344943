"""Networks are drawn from their seed alone, as torch draws by default."""

import pytest
import torch
from torch import nn

from rankscope.lab.models import BiLstmConfig, MlpConfig, ModularConfig, UnetConfig, VggConfig
from rankscope.lab.models.initialisation import draw_defaults, undrawn

CONFIGS = (
    VggConfig(width=0.0625),
    MlpConfig(inputs=12, hidden=5),
    BiLstmConfig(features=3, hidden=4, layers=2, characters=5),
    UnetConfig((8, 8, 16, 16), time=6, groups=4, padding=1),
    ModularConfig(p=5, width=12, heads=3, hidden=7),
)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_weights_come_from_the_seed_alone(config: VggConfig) -> None:
    before = torch.get_rng_state()
    first, same, other = (config.build(seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], same[name]) for name in first)
    changed = [name for name in first if not torch.equal(first[name], other[name])]
    assert {name for name in first if first[name].ndim > 1} <= set(changed)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_the_shown_matrix_and_pair_are_there(config: VggConfig) -> None:
    model = config.build(0)
    matrix, pair = model.shown()
    (shown,) = [declared for declared in model.alignment_pairs() if declared.name == pair]
    assert matrix == shown.earlier


@pytest.mark.parametrize(
    "construct",
    [
        lambda: nn.Linear(50, 40),
        lambda: nn.Conv2d(8, 16, 3),
        lambda: nn.ConvTranspose2d(8, 32, 3),
        lambda: nn.LSTM(9, 16, bidirectional=True),
    ],
    ids=["linear", "conv", "conv_transpose", "lstm"],
)
def test_layers_are_drawn_as_torch_draws_them(construct: type[nn.Module]) -> None:
    """Uniform with the range of torch's own initial weights."""
    ours = undrawn(construct)
    draw_defaults(ours, torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = dict(construct().named_parameters())
    for name, parameter in ours.named_parameters():
        if parameter.numel() < 200:  # too few for their largest entry to say much
            continue
        bound = theirs[name].abs().max()
        torch.testing.assert_close(parameter.abs().max(), bound, rtol=0.03, atol=0.0)
        spread = bound.detach() / 3**0.5  # of a uniform distribution
        torch.testing.assert_close(parameter.std(), spread, rtol=0.1, atol=0.0)


def test_norms_start_as_the_identity() -> None:
    network = undrawn(lambda: nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3)))
    draw_defaults(network, torch.Generator())
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in network)
    assert (network[0].running_mean == 0).all() and (network[0].running_var == 1).all()
    assert network[0].num_batches_tracked == 0
