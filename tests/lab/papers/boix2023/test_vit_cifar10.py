from dataclasses import replace

import pytest

from lab.papers.boix2023.vit_runs import trainings
from rankscope.lab.data.images import CIFAR10, CIFAR10_TEST
from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023.vit_cifar10 import EPOCH, experiment
from rankscope.lab.tasks.classification import Classification


def test_paper_scale_is_the_papers() -> None:
    run = trainings(experiment("paper"))["vit/scale-1"]
    network = VitConfig(
        image=32, patch=4, depth=6, heads=8, width=512, hidden=512, head_width=128, init_scale=1
    )
    assert run.task == Classification(CIFAR10, network, test=CIFAR10_TEST)
    assert run.optimizer.rate == 1e-4 and run.optimizer.decay == 0 and run.batch == 512
    assert EPOCH == 50_000 // 512 and run.steps == 500 * EPOCH
    # Up to the peak in 15 epochs, down to its half in the middle of the rest, to 0 at the end.
    assert run.rate(15 * EPOCH - 1) == run.rate(15 * EPOCH) == 1
    assert run.rate(0) == pytest.approx(1 / (15 * EPOCH))
    assert run.rate((15 + 500) * EPOCH // 2) == pytest.approx(0.5, abs=1e-3)
    assert run.rate(run.steps) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_scales_differ_in_initial_weights_and_when_they_stop(scale: Scale) -> None:
    declared = trainings(experiment(scale))
    factors = (1, 0.1) if scale == "smoke" else (1, 0.3, 0.1, 0.03)
    assert set(declared) == {f"vit/scale-{factor}" for factor in factors}
    for factor in factors:
        run = declared[f"vit/scale-{factor}"]
        assert run.changes and run.task.model.init_scale == factor
        assert (run.stop is None) is (factor == 1)
        assert run.stop is None or scale != "paper" or run.stop.steps == 50 * EPOCH
        model = replace(run.task.model, init_scale=1.0)
        plain = replace(run, task=replace(run.task, model=model), stop=None)
        assert plain == declared["vit/scale-1"]


def test_snapshots_are_denser_at_first_and_not_too_many() -> None:
    run = trainings(experiment("paper"))["vit/scale-1"]
    taken = [step for step in range(run.steps + 1) if run.snapshots(step)]
    assert taken[0] == 0 and taken[4] < EPOCH and taken[5:8] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    until_settled = [step for step in taken if EPOCH <= step <= 60 * EPOCH]
    assert len(until_settled) >= 15 and len(taken) <= 40  # what B7 looks at, what is kept
    small = trainings(experiment("small"))["vit/scale-1"]
    assert 20 <= sum(map(small.snapshots, range(small.steps + 1))) <= 40
