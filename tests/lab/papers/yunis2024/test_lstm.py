import os
from pathlib import Path

import pytest

from lab.papers.archived import RESULTS
from rankscope import store
from rankscope.lab.archive.archived_files import archive_path
from rankscope.lab.papers.yunis2024 import lstm
from rankscope.lab.running.identity import identity
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun


def test_paper_has_the_published_network_fractions_of_training_and_sum_of_rates() -> None:
    assert lstm.PAPER.task.model == lstm.PUBLISHED.task.model
    assert 0.5 <= lstm.PAPER.rate_sum / lstm.PUBLISHED.rate_sum <= 2
    published = snapshots(lstm.PUBLISHED)
    assert len(published) == 55
    # The four inside the first epoch fall between steps where an epoch has few.
    assert snapshots(lstm.PAPER) == pytest.approx(published, abs=1 / lstm.PAPER.steps)


def snapshots(run: TrainingRun) -> list[float]:
    """Return where snapshots are taken, as fractions of training."""
    return [step / run.steps for step in range(run.steps + 1) if run.snapshots(step)]


def test_seed_0_is_archived_as_it_is_declared_now() -> None:
    for key, run in lstm.experiment("paper").runs.items():
        attrs = store.open(archive_path(RESULTS, key, 0)).attrs
        assert attrs["identity"] == identity(run, 0)


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
@pytest.mark.slow
def test_later_seeds_read_the_speech_that_seed_0_read() -> None:
    """The loss of the constant predictor counts the characters and frames of all training data."""
    key, run = next(iter(lstm.experiment("paper").runs.items()))
    archived = store.open(archive_path(RESULTS, key, 0)).attrs
    machine = Machine(data=Path(os.environ["RANKSCOPE_DATA"]))
    problem = run.task.build(machine, seed=0)
    assert problem.constant_loss == pytest.approx(archived["constant_loss"], rel=1e-12)
    parameters = sum(tensor.numel() for tensor in problem.model.parameters())
    assert parameters == archived["parameters"]
