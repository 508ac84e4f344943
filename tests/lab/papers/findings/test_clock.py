"""What the experiment of the clock declares."""

from dataclasses import replace

from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.papers.findings import clock
from rankscope.lab.tasks.head_changes import WithHeadChanges


def test_the_vits_are_those_of_the_papers_experiment_for_six_epochs() -> None:
    runs = {key: run for key, run in clock.experiment("paper").runs.items() if key.network == "vit"}
    declared = vit_cifar10.experiment("paper").runs
    scales = {key.variant["scale"]: run for key, run in declared.items()}
    assert {key.variant["scale"] for key in runs} == set(scales) == {1.0, 0.3, 0.1, 0.03}
    for key, run in runs.items():
        theirs = scales[key.variant["scale"]]
        assert isinstance(run.task, WithHeadChanges) and run.steps == 6 * 97
        same = {"steps": run.steps, "snapshots": run.snapshots, "stop": None}
        assert replace(run, task=run.task.task) == replace(theirs, **same)
        due = [step for step in range(run.steps) if run.snapshots(step)]
        assert due[:3] == [0, 20, 40]


def test_the_language_model_measures_products_and_no_truncations() -> None:
    for scale in ("paper", "small", "smoke"):
        (run,) = (run for key, run in clock.experiment(scale).runs.items() if key.network == "lm")
        assert run.changes and run.truncation is None and run.optimizer.decay == 0
