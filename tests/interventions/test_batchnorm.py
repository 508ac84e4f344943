import pytest
import torch
from torch import Tensor, nn

from rankscope.interventions import perturb, reestimate_batchnorm, sample_batches, truncate


class Normalised(nn.Module):
    """Draws from the global generator as it runs, as a diffusion model does, and has dropout."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.noise = noise
        self.first = nn.BatchNorm1d(3, momentum=0.3)
        self.drop = nn.Dropout(0.5)
        self.second = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.drop(self.first(x + self.noise * torch.randn_like(x))))


def test_batchnorm_statistics_are_the_plain_average_over_batches() -> None:
    x = 3 + 2 * torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model = Normalised().double()
    model.first.running_mean.fill_(100)
    model.first.num_batches_tracked.fill_(50)
    reestimate_batchnorm(model, iter(x.split(10)))
    torch.testing.assert_close(model.first.running_mean, x.mean(0))
    variance = x.reshape(4, 10, 3).var(1).mean(0)
    torch.testing.assert_close(model.first.running_var, variance)
    # In train mode the first norm hands on standardised batches; dropout is off.
    biased = x.reshape(4, 10, 3).var(1, correction=0)
    standard = (biased / (biased + 1e-5)).mean(0) * 10 / 9
    torch.testing.assert_close(model.second.running_var, standard)
    assert model.second.num_batches_tracked == 4


@pytest.mark.parametrize("batch_type", ["tensor", "tuple", "dict"])
def test_a_batch_is_what_the_model_is_called_with(batch_type: str) -> None:
    x = torch.arange(30.0).reshape(10, 3)
    model = Normalised()
    batch = {"tensor": x, "tuple": (x,), "dict": {"x": x}}[batch_type]
    reestimate_batchnorm(model, [batch])
    torch.testing.assert_close(model.first.running_mean, x.mean(0))


def test_modes_momenta_and_weights_are_put_back_even_after_an_error() -> None:
    model = Normalised().train()
    model.drop.eval()
    modes = [module.training for module in model.modules()]
    model.first.running_mean.fill_(7)
    with pytest.raises(ValueError, match="at least one batch"):
        reestimate_batchnorm(model, [])
    assert (model.first.running_mean == 7).all()
    with pytest.raises(ValueError, match="expected 2D or 3D input"):
        reestimate_batchnorm(model, [torch.zeros(3)])
    assert [module.training for module in model.modules()] == modes
    assert (model.first.momentum, model.second.momentum) == (0.3, 0.1)


def test_the_global_generator_is_left_alone() -> None:
    model = Normalised(noise=1.0)
    before = torch.get_rng_state()
    means = []
    for seed in (1, 1, 2):
        reestimate_batchnorm(
            model, [torch.zeros(10, 3)], generator=torch.Generator().manual_seed(seed)
        )
        means.append(model.first.running_mean.clone())
    reestimate_batchnorm(model, [torch.zeros(10, 3)])
    linear = nn.Module()
    with torch.random.fork_rng():
        linear.layer = nn.Linear(4, 4)
    truncate(linear, skip=())
    perturb(linear, std=1.0, generator=torch.Generator())
    list(sample_batches(torch.zeros(10, 3), batch_size=5, generator=torch.Generator()))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(means[0], means[1])
    assert not torch.equal(means[0], means[2])


def test_sampled_batches_are_full_and_never_repeat_an_input() -> None:
    inputs = torch.arange(50)[:, None]
    generator = torch.Generator().manual_seed(3)
    batches = list(sample_batches(inputs, samples=44, batch_size=10, generator=generator))
    assert [tuple(batch.shape) for batch in batches] == [(10, 1)] * 4
    drawn_inputs = torch.cat(batches).flatten().tolist()
    assert len(set(drawn_inputs)) == 40
    assert drawn_inputs != sorted(drawn_inputs)
    with pytest.raises(ValueError, match="between 1 and the 50 samples, got 51"):
        sample_batches(inputs, batch_size=51, generator=generator)
