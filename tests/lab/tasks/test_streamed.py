import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lab.tasks.linear import LinearConfig
from lab.training.test_training_run import executed, same_but_for_times
from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns
from rankscope.lab.data.shards import IMAGENET, TINY_IMAGENET, TINY_IMAGENET_VALIDATION
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks import streamed
from rankscope.lab.tasks.streamed import StreamedClassification, StreamedProblem
from rankscope.lab.training import loop
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.order import generator
from rankscope.lab.training.task import Batch, Machine
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

SIZE, COUNT, HELD = 12, 230, 90


TASK = StreamedClassification(
    Patterns(count=COUNT),
    Patterns("validation", HELD),
    LinearConfig(3 * SIZE**2),
    Crops(SIZE),
    window=2,
)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> StreamedProblem:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return TASK.build(Machine(), seed=5)


def test_batches_follow_from_seed_and_step(problem: StreamedProblem, tmp_path: Path) -> None:
    """A killed run that resumes sees the same batches, from other files in the same state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSCOPE_CACHE", str(tmp_path))
        again = TASK.build(Machine(), seed=5)
    assert problem.samples == COUNT
    order, resumed = problem.order(16, seed=3), again.order(16, seed=3)
    batches = [problem.draw(order(step), generator(3, "noise", step)) for step in range(16)]
    for step in (15, 9):
        images, labels = again.draw(resumed(step), generator(3, "noise", step))
        assert torch.equal(images, batches[step][0]) and torch.equal(labels, batches[step][1])
    assert not torch.equal(batches[0][0], batches[1][0])


def test_a_slice_of_a_batch_is_what_the_whole_batch_has_there(problem: StreamedProblem) -> None:
    """A process that learns from a part of a batch decodes that part, and it is the same."""
    indices = problem.order(32, seed=0)(0)
    whole = problem.draw(indices, generator(0, "noise", 0))
    parts = [problem.draw(part, generator(0, "noise", 0)) for part in indices.chunk(4)]
    for joined, expected in zip(zip(*parts, strict=True), whole, strict=True):
        assert torch.equal(torch.cat(joined), expected)


def test_crops_differ_between_images_and_steps(problem: StreamedProblem) -> None:
    same = torch.zeros(2, dtype=torch.int64)
    first, second = (problem.draw(same, generator(0, "noise", step))[0] for step in (0, 1))
    assert torch.equal(first[0], first[1]) and not torch.equal(first[0], second[0])
    centre, _ = next(iter(problem.fixed(1)))
    assert not torch.equal(first[0], centre[0])


def test_inputs_have_imagenets_mean_and_deviation(problem: StreamedProblem) -> None:
    mean = torch.tensor([124, 116, 104], dtype=torch.uint8)  # 255 x (0.485, 0.456, 0.406), rounded
    (inputs,) = problem.inputs(mean[None, :, None, None].expand(2, 3, SIZE, SIZE))
    assert inputs.abs().max() < 0.02
    (bright,) = problem.inputs(torch.full((1, 3, SIZE, SIZE), 255, dtype=torch.uint8))
    expected = [(1 - m) / d for m, d in [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)]]
    np.testing.assert_allclose(bright[0, :, 0, 0], expected, rtol=1e-5)


def test_fixed_samples_are_the_same_at_every_call(problem: StreamedProblem) -> None:
    first, again = list(problem.fixed(50)), list(problem.fixed(50))
    assert sum(len(labels) for _, labels in first) == 50
    for (a, b), (c, d) in zip(first, again, strict=True):
        assert torch.equal(a, c) and torch.equal(b, d)
    assert sum(len(labels) for _, labels in problem.fixed(10**6)) == COUNT


def test_validation_is_of_all_held_out_images(
    problem: StreamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches give the same values as all images at once."""
    monkeypatch.setattr(streamed, "EVALUATION_BATCH", 40)
    crops = Crops(SIZE)
    images, labels = problem._test.images(
        torch.arange(HELD), lambda image, _: crops.middle(image), size=SIZE
    )
    assert len(problem._test) == HELD
    with torch.no_grad():
        logits = problem.model(*problem.inputs(images)).double()
        values = problem.validate(problem.model)
    assert values["validation_loss"] == pytest.approx(
        float(F.cross_entropy(logits, labels)), rel=1e-5
    )
    right = float((logits.argmax(1) == labels).double().mean())
    assert values["validation_accuracy"] == pytest.approx(right)
    assert problem.constant_loss == pytest.approx(math.log(10))


def test_a_training_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are drawn ahead; those of a training that stopped are drawn again, the same."""
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", math.inf)
    model = VitConfig(SIZE, 3, 6, depth=1, heads=1, width=4, hidden=4, head_width=2)
    task = replace(TASK, model=model)
    run = TrainingRun(task, AdamW(0.01), steps=6, batch=10, snapshots=Every(3))
    whole = executed(run, tmp_path / "whole")
    draw, drawn = StreamedProblem.draw, []

    def failing(*arguments: Any) -> Batch:
        drawn.append(arguments)
        if len(drawn) == 5:
            raise OSError("the disk is gone")
        return draw(*arguments)

    with monkeypatch.context() as broken, pytest.raises(OSError, match="the disk is gone"):
        broken.setattr(StreamedProblem, "draw", failing)
        executed(run, tmp_path / "stopped")
    assert (tmp_path / "stopped.checkpoint").exists()
    same_but_for_times(executed(run, tmp_path / "stopped"), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": IMAGENET}, "have 10 classes, those for validation 1000, the model 10"),
        ({"model": LinearConfig(1, classes=9)}, "validation 10, the model 9; all three must"),
        ({"window": 0}, "^a window has at least one row group, got 0"),
    ],
)
def test_declaration_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TASK, **options)


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
def test_tiny_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path))
    model = LinearConfig(3 * SIZE**2, classes=200)
    task = replace(TASK, images=TINY_IMAGENET, test=TINY_IMAGENET_VALIDATION, model=model)
    problem = task.build(Machine(), seed=0)
    images, labels = problem.draw(problem.order(100, seed=0)(1), generator(0, "noise", 1))
    assert images.shape == (100, 3, SIZE, SIZE) and len(labels.unique()) > 5
    with torch.no_grad():
        assert problem.validate(problem.model)["validation_loss"] > 0
