"""Claim N3 on runs that cross at chosen steps, with chosen ranks and norms there."""

import math

import numpy as np
import pytest
import xarray as xr

from lab.papers.findings.made_runs import GROK_STEPS, GROKKED, SEEDS, grok, grok_keys
from lab.papers.yunis2024.closed_form_runs import training_run
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.papers.findings.claims.crossings import (
    N3,
    crossing_of,
    crossing_table,
    total_norm,
    variation,
)
from rankscope.lab.papers.findings.runs import SeedRun
from rankscope.lab.running.run_key import RunKey


def judged(*runs: xr.Dataset, seeds: tuple[int, ...] = SEEDS) -> Verdict:
    """Judge 27 runs, which take the given ones in turn."""
    keys = grok_keys()
    taken = iter(range(len(keys) * len(seeds)))
    entries = {key: {seed: runs[next(taken) % len(runs)] for seed in seeds} for key in keys}
    return judge(N3, AvailableRuns(entries))


def word(verdict: Verdict) -> str:
    (network,) = verdict.networks
    assert len({outcome.value for outcome in network.seeds}) <= 1  # one value
    return network.word


def test_the_crossing_of_a_run() -> None:
    run = SeedRun(RunKey("grok", {"decay": 1.0, "share": 0.3}), 3, grok(3, 400, 2.0))
    moment = crossing_of(run)
    assert moment.step == pytest.approx(1.5)  # half way from 10 to 100 in log10
    assert moment.rank == pytest.approx(0.4) and moment.norm == pytest.approx(2 * math.sqrt(400))


def test_rank_and_norm_are_interpolated_where_accuracy_is_one_half() -> None:
    ds = grok(3, 400)
    ds["singular_values"][3:] *= 3.0
    ds["validation_accuracy"][3] = 0.8
    moment = crossing_of(SeedRun(RunKey("grok"), 3, ds))
    assert moment.step == pytest.approx(1 + 0.5 / 0.8)
    assert moment.norm == pytest.approx(math.sqrt(400) * (1 + 2 * 0.5 / 0.8))


def test_the_norm_is_that_of_whole_matrices_together() -> None:
    spectra = {name: np.full((6, 4), size) for name, size in (("a", 1.0), ("b", 2.0), ("c", 9.0))}
    ds = training_run(spectra, steps=GROK_STEPS, parts={"c": "b"})
    np.testing.assert_allclose(total_norm(ds), np.sqrt(4 * 1.0 + 4 * 4.0))


def test_variation_is_of_a_sample() -> None:
    assert variation([1.0, 2.0, 3.0]) == pytest.approx(0.5)
    assert math.isnan(variation([1.0]))


def test_it_holds() -> None:
    verdict = judged(*GROKKED)
    ranks = np.tile([0.49, 0.5, 0.51], 9)
    assert word(verdict) == "holds"
    assert verdict.networks[0].value == pytest.approx(np.std(ranks, ddof=1) / 0.5, rel=1e-4)
    (table,) = verdict.tables
    assert len(table.rows) == 1 and verdict.remarks == ()


def test_it_fails_if_the_rank_varies_too_much() -> None:
    assert word(judged(grok(3, 450, 1.0), grok(4, 550, 3.0))) == "fails"


def test_it_fails_if_the_steps_are_alike() -> None:
    assert word(judged(grok(3, 490, 1.0), grok(3, 510, 3.0))) == "fails"


def test_it_fails_if_the_norm_varies_less() -> None:
    """Sizes that undo the ranks: the norm is the same everywhere."""
    alike = [grok(jump, rank, 1 / math.sqrt(rank)) for jump, rank in ((3, 495), (4, 505))]
    assert word(judged(*alike)) == "fails"


@pytest.mark.parametrize(("crossing", "expected"), [(20, "holds"), (19, "fails")])
def test_at_least_20_of_27_have_to_cross(crossing: int, expected: str) -> None:
    never = grok(best=0.4)
    runs = [GROKKED[place % 3] for place in range(crossing)] + [never] * (27 - crossing)
    verdict = judged(*runs)
    assert word(verdict) == expected
    named = [
        remark for remark in verdict.remarks if "does not cross: best test accuracy 40%" in remark
    ]
    assert len(named) == 27 - crossing


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (grok(loss=(1.0, 1.0)), "training loss 1"),
        (grok(jump=1), "above 50% from the first snapshot on"),
        (grok(best=0.49), "best test accuracy 49%"),
    ],
)
def test_what_does_not_count_as_crossing(run: xr.Dataset, reason: str) -> None:
    moment = crossing_of(SeedRun(RunKey("grok"), 3, run))
    assert reason in moment.reason and math.isnan(moment.step)


def test_fewer_than_27_runs_cannot_tell() -> None:
    verdict = judged(*GROKKED, seeds=(3, 4))
    assert word(verdict) == "no data" and "has 18 of the 27 runs" in verdict.remarks[0]


def test_with_no_crossing_it_fails() -> None:
    verdict = judged(grok(best=0.2))
    assert word(verdict) == "fails" and verdict.networks[0].value is None


def test_every_run_has_a_row() -> None:
    key = RunKey("grok", {"decay": 1.0, "share": 0.3}, experiment="findings/grokking-rank")
    table = crossing_table(Runs({key: {3: GROKKED[0], 4: grok(best=0.3)}}))
    assert [row[:4] for row in table.rows] == [(1.0, 0.3, 3, 32), (1.0, 0.3, 4, None)]
