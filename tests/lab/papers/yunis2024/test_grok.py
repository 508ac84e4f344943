from dataclasses import replace

import pytest

from lab.papers.yunis2024.declared import trainings
from rankscope.lab.papers.yunis2024 import grok
from rankscope.lab.tasks.modular import ModularAddition
from rankscope.lab.training.run import TrainingRun


def runs(scale: str) -> dict[str, TrainingRun]:
    return trainings(grok.experiment(scale))


def test_paper_scale_is_the_papers() -> None:
    declared = runs("paper")
    assert set(declared) == {"grok/decay-0", "grok/decay-0.1", "grok/decay-1"}
    for run in declared.values():
        assert run.optimizer.decay == run.paper_decay
        assert run.decay_sum == pytest.approx(40 * run.paper_decay)
        assert run.batch == int(0.3 * 113**2)


def test_small_decays_as_much_as_the_paper_within_a_factor_of_two() -> None:
    paper, small = runs("paper"), runs("small")
    for name in ("grok/decay-0.1", "grok/decay-1"):
        assert 0.5 <= small[name].decay_sum / paper[name].decay_sum <= 2
    assert small["grok/decay-0"].decay_sum == 0


@pytest.mark.parametrize("scale", ["paper", "small", "smoke"])
def test_runs_take_full_batches_and_differ_in_their_decay_alone(scale: str) -> None:
    declared = runs(scale).values()
    same = {
        replace(run, paper_decay=None, optimizer=replace(run.optimizer, decay=0.0))
        for run in declared
    }
    assert len(same) == 1
    for run in declared:
        assert isinstance(run.task, ModularAddition)
        assert run.batch == run.task.samples
