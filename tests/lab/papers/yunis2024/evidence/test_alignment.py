import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import evidence, share, table
from lab.papers.yunis2024.closed_form_runs import PairCourse, course, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept, together
from rankscope.lab.papers.yunis2024.claims.alignment import Y3_FIRST
from rankscope.lab.papers.yunis2024.claims.filters import Y11_FIRST
from rankscope.lab.papers.yunis2024.claims.kinds import Y10
from rankscope.lab.papers.yunis2024.evidence import alignment


def pair(earlier: str, *a: float, kind: str = "linear") -> PairCourse:
    """Make a pair of this a / background; its background is 0.1."""
    return PairCourse(earlier, "end", course([ratio / 10 for ratio in a]), kind=kind)


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows by network and seed. Tables have the seeds of which every run is there."""
    return {(row["network"], row["seed"]): row for row in rows}


def test_pairs_at_chance_are_those_of_y3() -> None:
    *rows, together, _ = table(alignment.at_chance).rows
    judged_at = by_place(evidence("yunis2024", Y3_FIRST))
    for network, seed, _, at_chance, weak in rows:
        _, _, judged_at_chance, _, judged_weak = list(judged_at[network, seed].values())[:5]
        assert (at_chance, share(weak)) == pytest.approx((judged_at_chance, judged_weak))
    met, total = np.array([row[2].split(" of ") for row in rows], int).sum(0)
    assert together == ("together", None, f"{met} of {total}", pytest.approx(met / total), None)


def test_random_pairs_are_called_at_chance_as_often_as_the_normal_law_says() -> None:
    deviation = math.sqrt((math.pi / 2 - 1) / 10)  # of the mean of ten half-normals over its mean
    expected = math.erf(0.25 / deviation / math.sqrt(2))
    assert alignment.random_share() == pytest.approx(expected, abs=0.01)


def test_kinds_and_centres_are_those_of_y10_and_y11() -> None:
    rows = table(alignment.lm_kinds_by_decay).rows
    at_base = {row[0].split(" (")[0]: row[2] for row in rows}
    _, _, _, *kinds = evidence("yunis2024", Y10)[0].items()  # network, seed, best other
    assert {kind: at_base[kind] for kind, _ in kinds} == pytest.approx(dict(kinds))
    judged_at = by_place(evidence("yunis2024", Y11_FIRST))
    for network, seed, raw, unit in table(alignment.centres).rows:
        judged = judged_at[network, seed]
        shares = judged["share"], judged["share, normalised"]
        assert (share(raw), share(unit)) == pytest.approx(shares)


def test_a_peak_is_early_up_to_a_third_of_the_steps() -> None:
    ds = training_run(
        pairs=[
            pair("at a third", 1, 1, 5, 1, 1),
            pair("just after", 1, 1, 1, 5, 1),
            pair("hardly falls", 1, 5, 1, 1, 4.1),
            pair("falls just enough", 1, 5, 1, 1, 3.9),
        ],
        steps=[0, 10, 20, 21, 60],
    )
    assert alignment.peaks_by_steps(ds).values.tolist() == [True, False, False, True]


def test_peaks_are_told_apart_by_kind() -> None:
    falls, rises = (6, 3, 3, 3, 2), (1, 1, 1, 1, 4)
    pairs = [
        pair("w", *falls, kind="w1-w2"),
        pair("v", *falls, kind="w1-w2"),
        *(pair(name, *rises, kind="qk") for name in "abc"),
    ]
    runs = swept("lm", {0.1: training_run(pairs=pairs)})
    rows = {name: cells for name, *cells in alignment.lm_peaks_by_kind(runs).rows}
    assert rows["w1-w2"] == ["2 of 2", pytest.approx(6), 0, pytest.approx(2)]
    assert rows["qk"] == ["0 of 3", pytest.approx(4), 4, pytest.approx(4)]
    assert rows["not qk"] == rows["w1-w2"] and rows["all"][0] == "2 of 5"


def test_trends_are_medians_over_pairs_of_rank_correlations() -> None:
    levels = {0.0: (1, 1, 4), 0.1: (2, 2, 3), 1.0: (3, 3, 2), 10.0: (4, 5, 1)}
    runs = swept(
        "lm",
        {
            decay: training_run(
                pairs=[pair(name, 1, a) for name, a in zip("abc", ends, strict=True)]
            )
            for decay, ends in levels.items()
        },
    )
    (row,) = alignment.trends(runs).rows
    assert row == ("lm", 0, pytest.approx(1), pytest.approx(1))


def test_shown_pairs_stay_under_their_decay_where_a_run_collapsed() -> None:
    def ends(shown: float, **options) -> xr.Dataset:
        pairs = [pair("other", 1, 9), pair("shown", 1, shown)]
        return training_run(pairs=pairs, shown_pair="shown > end", **options)

    bad = ends(9, loss=(1, 1))
    seeds = {
        0.0: {0: ends(1), 1: ends(5)},
        0.1: {0: bad, 1: ends(6)},
        1.0: {0: ends(3), 1: ends(7)},
        10.0: {0: ends(4), 1: ends(8)},
    }
    runs = together(*(swept(network, seeds) for network in ("vgg", "unet", "lstm", "lm")))
    first, second, *_ = alignment.shown_pairs(runs).rows
    assert first[:3] == ("vgg", 0, "shown > end")
    assert first[3:] == (pytest.approx(1), None, pytest.approx(3), pytest.approx(4))
    assert second[3:] == pytest.approx((5, 6, 7, 8))


def test_overlaps_are_those_of_the_named_directions() -> None:
    diagonal = np.tile(np.arange(1, 21) / 100, (2, 1))
    pairs = [
        PairCourse("q", "k", diagonal, kind="qk"),
        PairCourse("u", "v", 2 * diagonal, kind="w1-w2"),
    ]
    runs = swept("lm", {0.1: training_run(pairs=pairs)})
    overlaps = [row[2] for row in alignment.lm_overlaps(runs).rows]
    assert overlaps == pytest.approx([0.015, 0.1, 0.11])
