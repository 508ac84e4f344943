from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import evidence, table, verdict
from lab.papers.boix2023.vit_runs import STEPS_PER_EPOCH, courses, vit_run
from rankscope.lab.judging.runs import Runs
from rankscope.lab.papers.boix2023.claims.vits import B7, B8, B9
from rankscope.lab.papers.boix2023.evidence import vit
from rankscope.lab.papers.boix2023.evidence.vit import VIT

EPOCHS = [0, 1, 2, 3, 4, 5, 6, 12, 126, 200]
STEPS = [STEPS_PER_EPOCH * epoch for epoch in EPOCHS]


SCALES = (1.0, 0.3, 0.1, 0.03)


def scaled(*datasets: xr.Dataset) -> Runs:
    """Return these runs at the initial scales 1, 0.3, 0.1, 0.03; one run alone is all of them."""
    if len(datasets) == 1:
        datasets *= len(SCALES)
    keys = [replace(VIT, variant={"scale": scale}) for scale in SCALES]
    return Runs({key: {0: ds} for key, ds in zip(keys, datasets, strict=True)})


def run(*blocks: list[int], **options) -> xr.Dataset:
    """Give blocks these ranks at each of EPOCHS, in both kinds of product."""
    return vit_run(courses(*blocks), steps=STEPS, **options)


def test_blocks_and_heads_are_those_of_b7_to_b9() -> None:
    values = {
        (rule.claim, network.variant.get("scale"), network.part): network.value
        for rule in (B7, B8, B9)
        for network in verdict("boix2023", rule).networks
        if network.experiment == VIT.experiment
    }
    judged = table(vit.growth).rows[0]
    above = table(vit.low_ranks).rows[-1]
    for scale, blocks, heads in zip(SCALES, judged[1:], above[1:], strict=True):
        assert blocks / 6 == pytest.approx(values["B7", scale, "K-Q"])
        assert 1 - heads / 48 == pytest.approx(values["B9", scale, "V-O"])
    _, *counts = table(vit.trends_by_reading).rows[0][:3]
    for count, part in zip(counts, ("K-Q", "V-O"), strict=True):
        assert count / 6 == pytest.approx(values["B8", None, part])
    blocks = [row for row in table(vit.final_ranks).rows if row[1] != "median"]
    for (_, _, *ranks, correlation), row in zip(
        (block[:7] for block in blocks), evidence("boix2023", B8), strict=True
    ):
        judged_ranks = [row[f"rank at scale {scale:g}"] for scale in SCALES]
        assert [correlation, *ranks] == pytest.approx([row["Spearman"], *judged_ranks])


def test_growth_is_read_from_each_epoch_it_says() -> None:
    blocks = {
        "all along": [0, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "from 3 on": [0, 30, 20, 2, 3, 4, 5, 6, 7, 8],
        "from 6 on": [0, 30, 29, 28, 27, 26, 2, 3, 4, 5],
        "never": [0, 9, 8, 7, 6, 5, 4, 3, 2, 1],
    }
    runs = scaled(run(*blocks.values()))
    first = {name: cells[0] for name, *cells in vit.growth(runs).rows}
    assert first["from epoch 1, as judged"] == 1
    assert first["from epoch 3"] == 2
    assert first["from epoch 3, exceptions"] == "block 3, block 4"
    assert first["from epoch 1 to the end"] == 1
    # Interpolated to every epoch, the long time after epoch 12 decides.
    assert first["from epoch 1, each epoch counted once"] == 3
    assert first["snapshots judged"] == 9
    assert first["of them in epochs 1 to 4"] == 4


def test_the_window_is_set_against_epochs_1_and_3() -> None:
    blocks = (
        [0, 9, 4, 7, 7, 7, 7, 7, 7, 6],  # below epochs 1 and 3, above epoch 2
        [0, 5, 9, 4, 4, 4, 4, 4, 4, 6],  # above both, below epoch 2
        [0, 5, 9, 7, 4, 4, 4, 4, 4, 6],  # above epoch 1, below epochs 2 and 3
    )
    runs = scaled(run(*blocks))
    first = {name: cells[0] for name, *cells in vit.early_ranks(runs).rows}
    assert first["window ends below epoch 1"] == "1 of 3"
    assert first["window ends above epoch 3"] == "1 of 3"
    assert first["rank by block, first snapshot"] == "5 to 9"
    assert first["epoch 3"] == "4 to 7" and first["end of training, blocks 1 to 4"] == "6"
    assert first["epochs of the lowest V-O"] == "2 to 4"


def test_the_size_of_a_change_is_its_norm() -> None:
    ds = run([0, 4, 16, *[16] * 7], size=0.5, start=16)  # four, then sixteen values of 1/2
    assert vit.relative_size(ds, 1) == pytest.approx(1 / 4)
    assert vit.relative_size(ds, 2) == pytest.approx(1 / 2)


def heads(*ranks: int) -> xr.Dataset:
    """Make one block whose heads end at these ranks."""
    kq = np.ones((2, 1, len(ranks)), int)
    kq[-1, 0] = ranks
    return vit_run(kq)


def test_the_error_is_that_of_a_mean_over_heads_below_scale_1() -> None:
    runs = scaled(heads(1, 30, 1, 30), heads(2, 4, 2, 4), heads(3, 3, 3, 3), heads(1, 1, 1, 5))
    first, median, *_ = vit.final_ranks(runs).rows
    assert first[:7] == (
        "K-Q",
        "1",
        *map(pytest.approx, (15.5, 3, 3, 2)),
        pytest.approx(0.9487, abs=1e-4),
    )
    _, *errors = first[7:]
    assert first[7] == pytest.approx(1)  # 3 less 2
    # Deviations of 1 about 3: 4 / 3 of variance; of 3, 1, 1, 1 about 2: 12 / 3
    assert errors == pytest.approx([np.sqrt(4 / 3 / 4), 0, np.sqrt(12 / 3 / 4)])
    assert median[:6] == ("K-Q", "median", *map(pytest.approx, (15.5, 3, 3, 2)))


def test_ranks_are_read_at_epoch_126() -> None:
    def ds(at_12: int, at_126: int, end: int) -> xr.Dataset:
        return run([0, *[1] * 6, at_12, at_126, end])

    runs = scaled(ds(1, 8, 5), ds(2, 7, 6), ds(3, 6, 7), ds(4, 5, 8))
    rows = {name: cells for name, *cells in vit.trends_by_reading(runs).rows}
    assert rows["at epoch 126"] == [1, 1, "8", "7", "6", "5"]
    assert rows["at the end"] == [0, 0, "5", "6", "7", "8"]
    assert rows["effective rank, end"] == rows["at the end"]


def test_heads_above_a_quarter_are_followed() -> None:
    vo = courses([0, *[8] * 9], [0, *[8] * 7, 2, 2])  # of 16: a half, and an eighth
    ds = vit_run(np.ones_like(vo), vo, steps=STEPS)
    runs = scaled(ds.assign(validation_accuracy=("step", np.ones(len(STEPS)))))
    made = vit.exceptions_over_time(runs)
    assert "at the end: 0.5; the same heads from epoch 126 on" in made.title
    by_epoch = {row[0]: row[1:5] for row in made.rows}
    assert by_epoch["12"] == (4, "1, 2", False, 0.5)
    assert by_epoch["126"] == (2, "1", True, 0.5)
    largest = {name: cells[0] for name, *cells in vit.low_ranks(runs).rows}
    assert largest == {
        "K-Q, largest": pytest.approx(1 / 16),
        "V-O, largest": pytest.approx(1 / 2),
        "V-O, median": pytest.approx((1 / 2 + 1 / 8) / 2),
        "V-O, heads above 0.25": 2,
    }


def test_heads_that_are_never_above_a_quarter_are_said_so() -> None:
    ds = run([0, *[1] * 9]).assign(validation_accuracy=("step", np.ones(len(STEPS))))
    assert "at the end: -; the same heads all along" in vit.exceptions_over_time(scaled(ds)).title
