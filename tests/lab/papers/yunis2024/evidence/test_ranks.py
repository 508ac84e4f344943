import numpy as np
import pytest

from findings import ranks
from lab.claims.training_runs import flat, training_run


def test_matrices_that_grow_and_fall_are_those_of_the_verdicts(table, evidence, share) -> None:
    (_, _, *counts) = table(ranks.leads).rows[0]
    assert share(counts[0]) == pytest.approx(evidence("yunis2024/unet", "Y1")[0][2])
    ((matrix, *_),) = table(ranks.trailing).rows
    assert evidence("yunis2024/unet", "Y1")[0][-1] == f"1 of 15: {matrix}"
    falls = {row[1]: row[3] for row in table(ranks.falls).rows}  # at decay 0.1
    _, _, of_all, median, _ = evidence("yunis2024/lm", "Y2")[0]
    assert share(falls["falls by more than 0.01"]) == pytest.approx(of_all)
    assert falls["median change"] == pytest.approx(median)
    assert len(table(ranks.least_falls).rows) == round(50 * (1 - of_all))


def test_seeds_differ_by_no_more_than_y12_counts(table, evidence) -> None:
    largest = table(ranks.seed_ranges).rows[0][2]  # at the base decay
    assert evidence("yunis2024/vgg", "Y12", network="vgg")[0][1] == 1
    assert largest <= 0.05


def test_ranges_over_seeds_are_of_the_ends(keep_sweep) -> None:
    def ds(*left: int, **options):
        return training_run(
            {f"w{i}": flat(10, [9, rank]) for i, rank in enumerate(left)}, **options
        )

    seeds = {0: ds(5, 5, 5), 1: ds(5, 6, 9), 2: ds(5, 5, 4)}
    collapsed = {**seeds, 1: ds(1, 1, 1, loss=(1, 1))}
    keep_sweep("vgg", {0.0: seeds, 0.1: collapsed, 1.0: dict.fromkeys(range(3), ds(5, 5, 5))})
    largest, median = (row[1:] for row in ranks.seed_ranges().rows)
    assert largest == (pytest.approx(0.5), None, pytest.approx(0))  # ranges of 0, 1 and 5 tenths
    assert median == (pytest.approx(0.1, rel=1e-5), None, pytest.approx(0))


def test_exceptions_are_named_with_what_grows(keep_sweep) -> None:
    start = np.array([4.0, 2.0, 1.0])
    spectra = {
        "ahead": start * [[1, 1, 1], [3, 1.5, 1]],
        "behind": start * [[1, 1, 1], [1.1, 1.2, 1]],
    }
    keep_sweep("unet", {0.0: training_run(spectra)})
    assert ranks.trailing().rows == (("behind", 3, "10.0%", "20.0%"),)
    assert ranks.leads().rows == ((0, "UNet", "1 of 2"),)


def test_changes_of_rank_are_of_wide_matrices(keep_sweep) -> None:
    spectra = {"falls": flat(100, [100, 50]), "stays": flat(100, [90, 90])}
    ds = training_run(spectra)
    assert ranks.rank_change(ds).values == pytest.approx([-0.5, 0], abs=1e-5)
    keep_sweep("lm", {0.1: ds})
    assert ranks.least_falls().rows == (("stays", pytest.approx(0)),)
    assert [row[2] for row in ranks.falls().rows] == ["1 of 2", pytest.approx(-0.25, abs=1e-5), 0]
