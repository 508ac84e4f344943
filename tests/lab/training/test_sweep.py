"""Sweeps over decay and initial scale: names, seeds, decays that act alike at another length."""

from dataclasses import replace

import pytest

from lab.training.test_run import RUN
from rankscope.lab.data.digits import Digits
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.rates import Constant, Drops
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import acting_like, decay_sweep, scale_sweep
from rankscope.tracker import Every


def test_runs_are_named_by_the_papers_decay() -> None:
    runs = [RUN.with_decay(30 * decay, paper=decay) for decay in (0.1, 1e-4, 0.0)]
    seconds = {"paper": None, "small": 60, "smoke": 5}
    small = decay_sweep("paper/net", "small", runs, claims={}, figures={}, seconds=seconds)
    assert list(small.runs) == ["net/decay-0.1", "net/decay-0.0001", "net/decay-0"]
    assert small.seeds == (0, 1, 2) and small.expected_seconds == 60
    paper = decay_sweep("paper/net", "paper", runs, claims={}, figures={}, seconds=seconds)
    assert (paper.expected_seconds, paper.expected_on) == (None, "one H200")
    assert decay_sweep(
        "paper/net", "smoke", runs, claims={}, figures={}, seconds=seconds
    ).seeds == (0,)


def test_networks_at_several_initial_scales() -> None:
    task = Classification(Digits(), VitConfig(image=8, channels=1))
    run = replace(RUN, task=task, stop=Settled(loss=1e-3, steps=20))
    other = replace(run, batch=30)
    options = {"claims": {}, "figures": {}, "seconds": {"paper": 90, "small": 60, "smoke": 5}}
    swept = scale_sweep(
        "paper/vit", "small", {"vit": run, "other": other}, init_scales=(1.0, 0.1), **options
    )
    assert list(swept.runs) == [f"{n}/scale-{s}" for n in ("vit", "other") for s in ("1", "0.1")]
    scaled = replace(task, model=replace(task.model, init_scale=0.1))
    assert swept.runs["vit/scale-0.1"] == replace(run, task=scaled)
    assert swept.runs["other/scale-0.1"] == replace(other, task=scaled)
    assert swept.runs["vit/scale-1"] == replace(run, stop=None)
    assert (swept.seeds, swept.expected_seconds, swept.expected_on) == ((0, 1, 2), 60, "2 cores")
    paper = scale_sweep(
        "paper/vit", "paper", {"vit": run}, init_scales=(1.0,), paper_on="8 H200", **options
    )
    assert (paper.name, paper.expected_seconds, paper.expected_on) == ("paper/vit", 90, "8 H200")
    smoke = scale_sweep("paper/vit", "smoke", {"vit": run}, init_scales=(1.0,), **options)
    assert smoke.seeds == (0,)


def test_a_shorter_training_needs_a_larger_decay() -> None:
    def run(steps: int, rate: float, schedule: Constant | Drops) -> TrainingRun:
        return TrainingRun(
            RUN.task, Sgd(rate), steps=steps, batch=20, snapshots=Every(10), rate=schedule
        )

    paper, short = run(1000, 0.1, Drops((500,))), run(110, 0.5, Constant())
    assert paper.rate_sum == pytest.approx(55) and short.rate_sum == pytest.approx(55)
    assert acting_like(0.01, paper, short, share=0.5) == pytest.approx(0.005)
    half = run(55, 0.5, Constant())
    assert acting_like(0.01, paper, half, share=1.0) == pytest.approx(0.02)
    same = half.with_decay(acting_like(0.01, paper, half, share=1.0), paper=0.01)
    assert same.decay_sum == pytest.approx(paper.with_decay(0.01, paper=0.01).decay_sum)
