import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import evidence, share, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.claims.grokking import Y9
from rankscope.lab.papers.yunis2024.claims.growth import Y1_FIRST
from rankscope.lab.papers.yunis2024.claims.ranks import Y2, Y12
from rankscope.lab.papers.yunis2024.evidence import ranks
from rankscope.lab.running.run_key import RunKey


def test_matrices_that_grow_and_fall_are_those_of_the_verdicts() -> None:
    leads = {row[0]: row[2] for row in table(ranks.unet_leads).rows}  # by seed, at decay 0
    grown = {row["seed"]: row["share"] for row in evidence("yunis2024", Y1_FIRST, network="unet")}
    assert {seed: share(count) for seed, count in leads.items()} == pytest.approx(grown)
    falls = {row[:2]: row[3] for row in table(ranks.lm_falls).rows}  # at decay 0.1
    for stored in evidence("yunis2024", Y2, network="lm"):
        seed = stored["seed"]
        count = falls[seed, "matrices that fall by more than 0.01"]
        assert share(count) == pytest.approx(stored["share"])
        assert falls[seed, "median change"] == pytest.approx(stored["median change"])


def test_the_largest_range_over_seeds_is_within_the_bound_if_y12_counts_no_exception() -> None:
    largest = table(ranks.vgg_seed_ranges).rows[0][2]  # at the base decay
    judged = evidence("yunis2024", Y12, network="vgg")[0]
    assert (largest <= 0.05) == (judged["share"] == 1)


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


def test_leads_and_falls_are_counted() -> None:
    start = np.array([4.0, 2.0, 1.0])
    spectra = {
        "ahead": start * [[1, 1, 1], [3, 1.5, 1]],
        "behind": start * [[1, 1, 1], [1.1, 1.2, 1]],
    }
    runs = swept("unet", {0.0: training_run(spectra)})
    assert ranks.unet_leads(runs).rows == ((0, "UNet", "1 of 2"),)
    ds = training_run({"falls": flat(100, [100, 50]), "stays": flat(100, [90, 90])})
    assert ranks.rank_change(ds).values == pytest.approx([-0.5, 0], abs=1e-5)
    falls = [row[2] for row in ranks.lm_falls(swept("lm", {0.1: ds})).rows]
    assert falls == ["1 of 2", pytest.approx(-0.25, abs=1e-5), 0]


def test_singular_values_of_middle_layers_are_read_in_order() -> None:
    def mlp(left: int) -> xr.Dataset:
        """Leave so many of twenty values of the middle layer of three."""
        full = flat(20, [20, 20])
        return training_run({"first": full, "fc2": flat(20, [20, left]), "last": full})

    by_labels = {"true": mlp(10), "random": mlp(20)}
    keys = {labels: RunKey("mlp", {"labels": labels}) for labels in by_labels}
    made = ranks.label_spectra(Runs({keys[labels]: {0: ds} for labels, ds in by_labels.items()}))
    true, random = made.rows
    assert true == ("fc2", "true", 0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.0)  # half of twenty are left
    assert random == ("fc2", "random", 0, *[1.0] * 6)


def test_drops_and_jumps_are_those_of_y9() -> None:
    rows = {row[:2]: row[2:] for row in table(ranks.grokking_drops).rows}
    for row in evidence("yunis2024", Y9):
        _, seed, decay, drop, jump, _, end, accuracy = row.values()
        jump_step, drop_step, _, *ends = rows[decay, seed]
        assert drop_step == round(10**drop) and ends == pytest.approx([end, accuracy])
        assert jump_step == (None if jump is None else round(10**jump))


def test_the_drop_of_a_run() -> None:
    steps, left = [0, 1, 100, 101, 1000], [100, 90, 90, 30, 20]
    scalars = {"validation_accuracy": [0, 0.1, 0.2, 0.4, 0.9]}
    ds = training_run({"fc": flat(100, left)}, steps=steps, scalars=scalars)
    ((decay, seed, jump, at, by, end, accuracy),) = ranks.grokking_drops(
        swept("grok", {1.0: ds})
    ).rows
    assert (decay, seed, end, accuracy) == ("1", 0, pytest.approx(0.2), 0.9)
    assert 101 < jump < 1000
    assert at == pytest.approx(100, rel=0.12) and 0.5 < by <= 0.61  # the grid is 12% of a step wide
