"""Claim N2 on runs whose heads need chosen ranks."""

import math

import pytest
import xarray as xr

from lab.papers.findings.cut_runs import NONE, Needed, cut_run, key
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.papers.findings.claims.needed_rank import N2, needed_rank_table, spearman
from rankscope.lab.running.run_key import RunKey

RISING = {0.03: (1, 2, 2), 0.1: (2, 2, 4), 0.3: (4, 8, 8), 1.0: (8, 32, 32)}
FLAT = dict.fromkeys(RISING, (4, 8, 8))


def judged(runs: dict[RunKey, xr.Dataset], *, seeds: int = 3) -> Verdict:
    stored = {place: dict.fromkeys(range(seeds), ds) for place, ds in runs.items()}
    return judge(N2, AvailableRuns(stored))


def at_decays(*by_scale: dict[float, Needed]) -> dict[RunKey, xr.Dataset]:
    """Runs at decay 0, and at decay 0.1 if ranks are given for it."""
    return {
        key(scale, decay): cut_run(ranks)
        for decay, needed in zip((0.0, 0.1), by_scale, strict=False)
        for scale, ranks in needed.items()
    }


def words(verdict: Verdict) -> dict[str, str]:
    return {network.label: network.word for network in verdict.networks}


def changed(**ranks: Needed) -> dict[float, Needed]:
    """RISING with other ranks at some scales: changed(s1=(...))."""
    names = {"s003": 0.03, "s01": 0.1, "s03": 0.3, "s1": 1.0}
    return RISING | {names[name]: needed for name, needed in ranks.items()}


def test_there_is_a_mark_for_each_decay() -> None:
    verdict = judged(at_decays(RISING, FLAT))
    assert words(verdict) == {"vit, decay 0": "holds", "vit, decay 0.1": "fails"}
    assert [network.value for network in verdict.networks] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("needed", "word", "value"),
    [
        (RISING, "holds", 1.0),
        (FLAT, "fails", 0.0),
        (changed(s01=(2, 8, 8), s03=(2, 4, 4)), "holds", 0.8),
        (changed(s003=(2, 8, 8), s03=(2, 2, 2)), "fails", 0.2),
        (changed(s1=(8, 8, 1)), "fails", -0.2),
        # K-Q and V-O alone rise too, and both together decides
        (dict(zip(RISING, [(1, 1, 8), (2, 2, 4), (4, 4, 2), (8, 8, 1)], strict=True)), "fails", -1),
        # Spearman holds, and K-Q needs more than V-O at one scale
        (changed(s01=(4, 2, 4)), "fails", 1.0),
        (changed(s01=(2, 2, 4)), "holds", 1.0),
        # two of four ranks are equal: 4.5 / sqrt(5 * 4.5)
        (changed(s003=(1, 2, 4)), "holds", math.sqrt(0.9)),
        # three are: 3 / sqrt(5 * 3)
        (changed(s003=(1, 2, 4), s03=(2, 4, 4)), "fails", math.sqrt(0.6)),
        # no rank suffices at the largest scale: it ranks above 128
        (changed(s03=(4, 8, 128), s1=(8, NONE, NONE)), "holds", 1.0),
        (changed(s003=(1, NONE, NONE)), "fails", -0.2),
        (dict.fromkeys(RISING, (NONE, NONE, NONE)), "fails", 0.0),
        (changed(s1=(NONE, 128, NONE)), "fails", 1.0),
    ],
)
def test_the_rule(needed: dict[float, Needed], word: str, value: float) -> None:
    (network,) = judged(at_decays(needed)).networks
    assert network.word == word and network.value == pytest.approx(value)


def test_a_correlation_of_0_8_meets_the_bound_to_the_last_digit() -> None:
    assert spearman({0.03: 1.0, 0.1: 4.0, 0.3: 2.0, 1.0: 8.0}) == 0.8


@pytest.mark.parametrize(
    ("run", "remark"),
    [
        (cut_run((1, 2, 2), collapsed=True), "at scale 0.1 training loss 1, a constant"),
        (cut_run((1, 2, 2), end=0.1), "at scale 0.1 accuracy went from 10.0% to 10.0%"),
        (cut_run((1, 2, 2), end=0.05), "at scale 0.1 accuracy went from 10.0% to 5.0%"),
        (cut_run((1, 2, 2), diverged_at=40), "at scale 0.1 diverged at step 40"),
        (cut_run((1, 2, 2)).drop_attrs().assign_attrs(constant_loss=1.0), "no cuts were measured"),
    ],
    ids=["collapsed", "chance", "worse", "diverged", "not measured"],
)
def test_a_seed_cannot_tell_without_all_four_scales(run: xr.Dataset, remark: str) -> None:
    verdict = judged(at_decays(RISING, RISING) | {key(0.1, 0.0): run})
    assert words(verdict) == {"vit, decay 0": "no data", "vit, decay 0.1": "holds"}
    (seen, *_) = (line for line in verdict.remarks if "cannot tell" in line)
    assert remark in seen and "decay 0, seed 0" in seen
    few = judged({place: ds for place, ds in at_decays(RISING).items() if place != key(0.1, 0.0)})
    assert words(few) == {"vit, decay 0": "no data"}
    assert "has 3 of the 4 scales that it takes" in few.remarks[0]


def test_seeds_that_disagree_are_mixed_and_one_is_so_far() -> None:
    stored = {
        place: {0: ds, 1: ds, 2: flat}
        for (place, ds), flat in zip(
            at_decays(RISING).items(), at_decays(FLAT).values(), strict=True
        )
    }
    assert words(judge(N2, AvailableRuns(stored))) == {"vit, decay 0": "mixed"}
    assert words(judged(at_decays(RISING), seeds=1)) == {"vit, decay 0": "holds so far"}


def test_the_table_shows_every_scale() -> None:
    verdict = judged(at_decays(changed(s1=(8, 32, NONE))), seeds=1)
    (table,) = verdict.tables
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert [row["scale"] for row in rows] == [0.03, 0.1, 0.3, 1.0]
    assert [row["r*, K-Q"] for row in rows] == [1, 2, 4, 8]
    assert rows[-1]["r*, both"] == "> 128"
    assert all(row["kept at rank 0, both"] == pytest.approx(0.5) for row in rows)


def test_the_page_has_a_row_for_each_setting_with_the_ranks_of_its_seeds() -> None:
    runs = Runs(
        {
            key(1.0, 0.0): {3: cut_run((1, 2, NONE)), 4: cut_run((2, 2, 4), end=0.8)},
            key(0.1, 0.0): {3: cut_run((1, 2, 2)), 4: cut_run((1, 1, 1), collapsed=True)},
            key(1.0, 0.1): {3: cut_run((1, 1, 1), end=0.1)},
        }
    )
    table = needed_rank_table(runs)
    assert table.columns[4:] == ("r*, K-Q", "r*, V-O", "r*, both")
    assert table.rows == (
        (0.0, 0.1, "3", pytest.approx(0.6), "1", "2", "2"),
        (0.0, 1.0, "3, 4", pytest.approx(0.7), "1, 2", "2, 2", "> 128, 4"),
        (0.1, 1.0, "", None, "", "", ""),
    )
