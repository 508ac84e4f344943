import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lab.tasks.linear import Linear, LinearConfig
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import Images
from rankscope.lab.data.splits import split
from rankscope.lab.tasks.augmentation import CropFlip
from rankscope.lab.tasks.classification import (
    Classification,
    ClassificationProblem,
    channel_moments,
)
from rankscope.lab.tasks.constant import frequency_entropy
from rankscope.lab.training.task import Machine

TASK = Classification(Digits(), LinearConfig(64))
DATA = Digits().build()
GENERATOR = torch.Generator()


@pytest.fixture(scope="module")
def problem() -> ClassificationProblem:
    return TASK.build(Machine(), seed=5)


class Coarse(Linear):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images).bfloat16()


def test_losses_of_coarse_logits_are_not_coarse(problem: ClassificationProblem) -> None:
    batch = problem.draw(torch.arange(50), GENERATOR)
    coarse = Coarse(64, 10, 0).requires_grad_(False)
    loss = problem.loss(coarse, *batch)
    logits = coarse(*problem.inputs(*batch)).double()
    expected = (logits.logsumexp(1) - logits[range(50), batch[1]]).mean()
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)


def test_training_part_is_normalised(problem: ClassificationProblem) -> None:
    batch = problem.draw(torch.arange(problem.samples), GENERATOR)
    assert batch[0].dtype == torch.uint8
    (inputs,) = problem.inputs(*batch)
    assert abs(float(inputs.double().mean())) < 1e-6
    assert float(inputs.double().std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_moments_of_each_channel() -> None:
    inputs = torch.randint(
        0, 256, (7, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    inputs[:, 2] = 9
    mean, deviation = channel_moments(inputs)
    pixels = inputs.numpy().astype(np.float64)
    np.testing.assert_allclose(mean.flatten(), pixels.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(deviation.flatten()[:2], pixels.std((0, 2, 3))[:2], rtol=1e-6)
    assert deviation.flatten()[2] == 1  # nothing to divide by where all pixels are equal


def test_draw_gives_the_samples_of_the_training_split(problem: ClassificationProblem) -> None:
    train, _ = split(1797, seed=5)
    assert problem.samples == len(train)
    images, labels = problem.draw(torch.tensor([0, 7]), GENERATOR)
    assert torch.equal(images, DATA.inputs[train[[0, 7]]])
    assert torch.equal(labels, DATA.labels[train[[0, 7]]])


def test_fixed_samples_are_the_first_of_training(problem: ClassificationProblem) -> None:
    batches = list(problem.fixed(1100))
    assert [len(labels) for _, labels in batches] == [367, 367, 366]
    joined = [torch.cat(tensors) for tensors in zip(*batches, strict=True)]
    drawn = problem.draw(torch.arange(1100), GENERATOR)
    assert all(torch.equal(a, b) for a, b in zip(joined, drawn, strict=True))
    assert sum(len(labels) for _, labels in problem.fixed(10**6)) == problem.samples


def test_validation_is_of_the_held_out_samples(problem: ClassificationProblem) -> None:
    _, held = split(1797, seed=5)

    class Knows(nn.Module):
        """Right about the digits below 5, indifferent about the others."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            assert len(images) == len(held)
            right = F.one_hot(DATA.labels[held], 10).float() * 1e4
            return torch.where(DATA.labels[held, None] < 5, right, torch.zeros(10))

    values = problem.validate(Knows())
    labels = DATA.labels[held]
    assert values["validation_accuracy"] == pytest.approx(
        float(((labels < 5) | (labels == 0)).double().mean())
    )
    share = float((labels >= 5).double().mean())
    assert values["validation_loss"] == pytest.approx(share * math.log(10), rel=1e-6)


def test_constant_loss_is_the_entropy_of_the_labels(problem: ClassificationProblem) -> None:
    train, _ = split(1797, seed=5)
    assert problem.constant_loss == frequency_entropy(DATA.labels[train])


def test_random_labels_are_one_permutation_that_follows_the_seed() -> None:
    everything = torch.arange(1618)

    def drawn(random: bool, seed: int) -> tuple[torch.Tensor, ...]:
        task = replace(TASK, random_labels=random)
        return task.build(Machine(), seed=seed).draw(everything, GENERATOR)

    before = torch.get_rng_state()
    true, random, again, other = (
        drawn(*case) for case in ((False, 0), (True, 0), (True, 0), (True, 1))
    )
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(true[0], random[0])  # the same images in the same split
    assert torch.equal(random[1], again[1]) and not torch.equal(random[1], other[1])
    # As often right as by chance: 0.1, give or take four standard deviations.
    assert abs(float((true[1] == random[1]).double().mean()) - 0.1) < 4 * math.sqrt(0.09 / 1618)


@dataclass(frozen=True)
class Given:
    """Stands for a split of the hub."""

    images: Images

    def build(self, folder: Path | None = None) -> Images:
        return self.images


def test_a_split_of_its_own_validates() -> None:
    test = DATA[torch.arange(1700, 1797)]
    problem = replace(TASK, test=Given(test)).build(Machine(), seed=5)
    assert problem.samples == 1797
    images, labels = problem.draw(torch.arange(1797), GENERATOR)
    assert torch.equal(images, DATA.inputs) and torch.equal(labels, DATA.labels)
    with torch.no_grad():
        scores = problem.model(*problem.inputs(test.inputs))
        values = problem.validate(problem.model)
    right = float((scores.argmax(1) == test.labels).double().mean())
    assert values["validation_accuracy"] == pytest.approx(right)


def test_model_and_images_have_the_same_classes() -> None:
    with pytest.raises(ValueError, match="validation 10, the model 11; all three must"):
        replace(TASK, model=LinearConfig(64, classes=11)).build(Machine(), seed=5)
    with pytest.raises(ValueError, match="have 10 classes, those for validation 12, the model 10"):
        replace(TASK, test=Given(replace(DATA, classes=12))).build(Machine(), seed=5)


def test_only_what_is_learnt_from_is_augmented() -> None:
    problem = replace(TASK, augmentation=CropFlip(padding=1)).build(Machine(), seed=5)
    plain = TASK.build(Machine(), seed=5)
    indices = torch.arange(problem.samples)
    drawn, labels = problem.draw(indices, torch.Generator().manual_seed(3))
    expected, same = plain.draw(indices, GENERATOR)
    view = CropFlip(padding=1)(expected, torch.Generator().manual_seed(3))
    assert torch.equal(drawn, view) and torch.equal(labels, same)
    assert not torch.equal(drawn, expected)
    for ours, theirs in zip(problem.fixed(100), plain.fixed(100), strict=True):
        assert torch.equal(ours[0], theirs[0])
