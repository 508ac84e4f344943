"""Sweeps over decay and initial scale: keys, seeds, decays that act alike at another length."""

from dataclasses import replace

import pytest

from lab.training.test_training_run import RUN
from rankscope.lab.data.digits import Digits
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.rates import Constant, Drops
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import acting_like, decay_sweep, scale_sweep
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

SECONDS = {"paper": 90, "small": 60, "smoke": None}


@pytest.mark.parametrize(
    ("scale", "seeds", "seconds", "machine"),
    [
        ("paper", (0, 1, 2), 90, "one H200"),
        ("small", (0, 1, 2), 60, "2 cores"),
        ("smoke", (0,), None, "2 cores"),
    ],
)
def test_runs_are_keyed_by_the_papers_decay(
    scale: str, seeds: tuple[int, ...], seconds: int | None, machine: str
) -> None:
    runs = [RUN.with_decay(30 * decay, paper=decay) for decay in (0.1, 1e-4, 0.0)]
    swept = decay_sweep("paper/net", scale, runs, seconds=SECONDS)
    names = [key.name for key in swept.runs]
    assert names == ["net/decay-0.1", "net/decay-0.0001", "net/decay-0"]
    assert (swept.seeds, swept.expected_seconds, swept.expected_on) == (seeds, seconds, machine)


def test_networks_at_several_initial_scales() -> None:
    task = Classification(Digits(), VitConfig(image=8, channels=1))
    run = replace(RUN, task=task, stop=Settled(loss=1e-3, steps=20))
    other = replace(run, batch=30)
    networks = {"vit": run, "other": other}
    swept = scale_sweep(
        "paper/vit", "paper", networks, init_scales=(1.0, 0.1), seconds=SECONDS, paper_on="8 H200"
    )
    scaled = replace(task, model=replace(task.model, init_scale=0.1))
    assert {key.name: run for key, run in swept.runs.items()} == {
        "vit/scale-1": replace(run, stop=None),
        "vit/scale-0.1": replace(run, task=scaled),
        "other/scale-1": replace(other, stop=None),
        "other/scale-0.1": replace(other, task=scaled),
    }
    assert (swept.name, swept.expected_on) == ("paper/vit", "8 H200")


def test_a_shorter_training_needs_a_larger_decay() -> None:
    def run(steps: int, rate: float, schedule: Constant | Drops) -> TrainingRun:
        return TrainingRun(
            RUN.task, Sgd(rate), steps=steps, batch=20, snapshots=Every(10), rate=schedule
        )

    paper, half = run(1000, 0.1, Drops((500,))), run(55, 0.5, Constant())
    assert paper.rate_sum == pytest.approx(55)
    assert acting_like(0.01, paper, half, share=1.0) == pytest.approx(0.02)
    assert acting_like(0.01, paper, half, share=0.5) == pytest.approx(0.01)
    same = half.with_decay(0.02, paper=0.01)
    assert same.decay_sum == pytest.approx(paper.with_decay(0.01, paper=0.01).decay_sum)
