import pytest

from rankscope.lab.papers.yunis2024 import lstm
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
