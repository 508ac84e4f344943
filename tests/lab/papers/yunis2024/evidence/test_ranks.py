import numpy as np
import pytest

from lab.papers.archived import evidence, share, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.papers.yunis2024.claims.growth import Y1
from rankscope.lab.papers.yunis2024.claims.ranks import Y2, Y12
from rankscope.lab.papers.yunis2024.evidence import ranks


def test_matrices_that_grow_and_fall_are_those_of_the_verdicts() -> None:
    (stored,) = evidence("yunis2024", Y1, network="unet")
    (_, _, *counts) = table(ranks.unet_leads).rows[0]
    assert share(counts[0]) == pytest.approx(stored["share"])
    ((matrix, *_),) = table(ranks.unet_exceptions).rows
    assert stored["exceptions"] == f"1 of 15: {matrix}"
    (stored,) = evidence("yunis2024", Y2, network="lm")
    falls = {row[1]: row[3] for row in table(ranks.lm_falls).rows}  # at decay 0.1
    assert share(falls["matrices that fall by more than 0.01"]) == pytest.approx(stored["share"])
    assert falls["median change"] == pytest.approx(stored["median change"])
    assert len(table(ranks.lm_exceptions).rows) == round(50 * (1 - stored["share"]))


def test_seeds_differ_by_no_more_than_y12_counts() -> None:
    largest = table(ranks.vgg_seed_ranges).rows[0][2]  # at the base decay
    assert evidence("yunis2024", Y12, network="vgg")[0]["share"] == 1
    assert largest <= 0.05


def test_ranges_over_seeds_are_of_the_ends() -> None:
    def ds(*left: int, **options):
        return training_run(
            {f"w{i}": flat(10, [9, rank]) for i, rank in enumerate(left)}, **options
        )

    seeds = {0: ds(5, 5, 5), 1: ds(5, 6, 9), 2: ds(5, 5, 4)}
    collapsed = {**seeds, 1: ds(1, 1, 1, loss=(1, 1))}
    by_decay = {0.0: seeds, 0.1: collapsed, 1.0: dict.fromkeys(range(3), ds(5, 5, 5))}
    made = ranks.vgg_seed_ranges(swept("vgg", by_decay))
    largest, median = (row[1:] for row in made.rows)
    assert largest == (pytest.approx(0.5), None, pytest.approx(0))  # ranges of 0, 1 and 5 tenths
    assert median == (pytest.approx(0.1, rel=1e-5), None, pytest.approx(0))


def test_exceptions_are_named_with_what_grows() -> None:
    start = np.array([4.0, 2.0, 1.0])
    spectra = {
        "ahead": start * [[1, 1, 1], [3, 1.5, 1]],
        "behind": start * [[1, 1, 1], [1.1, 1.2, 1]],
    }
    runs = swept("unet", {0.0: training_run(spectra)})
    assert ranks.unet_exceptions(runs).rows == (("behind", 3, "10.0%", "20.0%"),)
    assert ranks.unet_leads(runs).rows == ((0, "UNet", "1 of 2"),)


def test_changes_of_rank_are_of_wide_matrices() -> None:
    ds = training_run({"falls": flat(100, [100, 50]), "stays": flat(100, [90, 90])})
    assert ranks.rank_change(ds).values == pytest.approx([-0.5, 0], abs=1e-5)
    runs = swept("lm", {0.1: ds})
    assert ranks.lm_exceptions(runs).rows == (("stays", pytest.approx(0)),)
    falls = [row[2] for row in ranks.lm_falls(runs).rows]
    assert falls == ["1 of 2", pytest.approx(-0.25, abs=1e-5), 0]
