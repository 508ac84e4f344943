"""What the experiment of grokking at a rank declares."""

from dataclasses import replace

import pytest

from rankscope.lab.papers.findings import grokking_rank
from rankscope.lab.papers.yunis2024 import grok


@pytest.mark.parametrize(("scale", "theirs"), [("paper", grok.PAPER), ("small", grok.SMALL)])
def test_nine_settings_of_the_papers_training(scale: str, theirs) -> None:
    runs = grokking_rank.experiment(scale).runs
    assert len(runs) == 9
    for key, run in runs.items():
        assert run.task.train_share == key.variant["share"] and run.batch == run.task.samples
        assert run.paper_decay == key.variant["decay"]
        task = replace(run.task, train_share=theirs.task.train_share)
        optimizer = replace(run.optimizer, decay=theirs.optimizer.decay)
        assert (task, optimizer) == (theirs.task, theirs.optimizer)


def test_the_papers_decays_and_shares() -> None:
    runs = grokking_rank.experiment("paper").runs
    settings = {(key.variant["decay"], key.variant["share"]) for key in runs}
    assert settings == {(d, s) for d in (0.3, 1.0, 3.0) for s in (0.25, 0.3, 0.4)}
    assert all(run.optimizer.decay == run.paper_decay for run in runs.values())
    small = grokking_rank.experiment("small").runs.values()
    assert all(run.optimizer.decay == 2 * run.paper_decay for run in small)
    assert all(key.variant["share"] < 0.5 for key in grokking_rank.experiment("small").runs)
