import math

import numpy as np
import pytest

from lab.papers.archived import evidence, share, table
from lab.papers.yunis2024.closed_form_runs import PairCourse, course, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.papers.yunis2024.claims.alignment import Y3, Y3B, Y10, peaks_early
from rankscope.lab.papers.yunis2024.claims.filters import Y11
from rankscope.lab.papers.yunis2024.evidence import alignment
from rankscope.lab.papers.yunis2024.runs import relative_alignment


def pair(earlier: str, *a: float, kind: str = "linear") -> PairCourse:
    """Make a pair of this a / background; its background is 0.1."""
    return PairCourse(earlier, "end", course([ratio / 10 for ratio in a]), kind=kind)


def test_pairs_at_chance_are_those_of_y3() -> None:
    *rows, together, _ = table(alignment.at_chance).rows
    for row, judged in zip(rows, evidence("yunis2024", Y3), strict=True):
        network, seed, _, at_chance, weak = row
        *place, judged_at_chance, _, judged_weak = list(judged.values())[:5]
        assert [network, seed] == place
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
    for kind, value in map(str.split, evidence("yunis2024", Y10)[0]["kinds"].split(", ")):
        assert at_base[kind] == pytest.approx(float(value), rel=5e-3)
    rows = table(alignment.centres).rows
    for (*place, raw, unit), judged in zip(rows, evidence("yunis2024", Y11), strict=True):
        assert place == [judged["network"], judged["seed"]]
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


def test_a_peak_is_early_up_to_a_third_of_the_snapshots() -> None:
    ds = training_run(pairs=[pair("second", 1, 5, 1, 1, 1, 1), pair("third", 1, 1, 5, 1, 1, 1)])
    early = peaks_early(relative_alignment(ds))
    assert early.values.tolist() == [True, False]


def test_peaks_of_the_mlp_are_told_from_those_of_queries_and_keys() -> None:
    falls, rises = (6, 3, 3, 3, 2), (1, 1, 1, 1, 4)
    pairs = [
        pair("w", *falls, kind="w1-w2"),
        pair("v", *falls, kind="w1-w2"),
        *(pair(name, *rises, kind="qk") for name in "abc"),
    ]
    other = training_run(pairs=pairs[2:3] * 2)
    runs = swept("lm", {0.1: training_run(pairs=pairs), 1.0: other})
    by_decay = alignment.lm_peaks_by_decay(runs).rows
    assert [row[2] for row in by_decay] == [0.4, 2, pytest.approx(6), pytest.approx(2)]
    assert [row[3] for row in by_decay[:2]] == [0, 0]
    rows = {name: cells for name, *cells in alignment.lm_peaks_by_kind(runs).rows}
    assert rows["w1-w2"] == ["2 of 2", pytest.approx(6), 0, pytest.approx(2)]
    assert rows["qk"] == ["0 of 3", pytest.approx(4), 4, pytest.approx(4)]
    assert rows["not qk"] == rows["w1-w2"] and rows["all"][0] == "2 of 5"


def test_a_jump_is_to_three_times_the_loss_and_above_a_twentieth() -> None:
    loss = np.array([0.016, 0.049, 0.016, 0.051, 0.148, 0.45, 0.45])
    # 3.06 times but small; 3.2 times; 2.9 times; 3.04 times
    assert alignment.jump_positions(loss) == [3, 5]


def jumping() -> dict:
    """A loss that jumps between steps 40 and 50, three of nine snapshots being early."""
    loss = [0.5, 0.4, 0.3, 0.1, 0.1, 0.4, 0.2, 0.1, 0.1]
    pairs = [
        pair("falls before", 1, 5, 2, 2, 2, 1, 1, 1, 1),
        pair("falls in it", 1, 5, 5, 5, 5, 1, 1, 1, 1),
        pair("falls and comes back", 1, 1, 5, 1, 1, 1, 1, 1, 5),
        pair("rises", 1, 2, 3, 4, 5, 6, 7, 8, 9),
    ]
    steps = range(0, 90, 10)
    return {"pairs": pairs, "loss": loss, "steps": steps, "shown_pair": "falls in it > end"}


def test_the_shown_pair_is_read_on_both_sides_of_a_jump() -> None:
    runs = swept("lstm", {0.1: training_run(**jumping())})
    ((decay, *moments, before, after, one, other, end),) = alignment.lstm_jumps(runs).rows
    assert (decay, moments, before, after) == ("0.1", [40, 50], 0.1, 0.4)
    assert (one, other, end) == pytest.approx((5, 1, 1))


def test_what_had_fallen_before_a_jump() -> None:
    calm = training_run(**{**jumping(), "loss": [0.5, 0.1]})
    rows = alignment.lstm_peaks(swept("lstm", {0.0: calm, 0.1: training_run(**jumping())})).rows
    without, with_jump = ([row[column] for row in rows] for column in (2, 3))
    assert without == [0.5, None, None, None, None]
    # Of five snapshots up to the jump only the first is of the first third.
    assert with_jump == [0.5, 40, "1 of 2", 0.5, 0.0]


def test_shares_of_early_peaks_are_those_of_y3b() -> None:
    (judged,) = evidence("yunis2024", Y3B, network="lstm")
    peaks = table(alignment.lstm_peaks)
    assert peaks.rows[0][peaks.columns.index("decay 0.1")] == pytest.approx(judged["share"])
