import numpy as np
import pytest
import xarray as xr

from findings import vit
from lab.vit_runs import STEPS_PER_EPOCH, courses, vit_run

EPOCHS = [0, 1, 2, 3, 4, 5, 6, 12, 126, 200]
STEPS = [STEPS_PER_EPOCH * epoch for epoch in EPOCHS]


@pytest.fixture
def keep_vits(keep):
    """keep_vits(run of scale 1, of 0.3, of 0.1, of 0.03)."""

    def put(*runs: xr.Dataset) -> None:
        names = [f"vit/scale-{scale:g}" for scale in vit.SCALES]
        keep("boix2023/vit-cifar10", dict(zip(names, runs, strict=True)))

    return put


def run(*blocks: list[int], **options) -> xr.Dataset:
    """Ranks of blocks at each of EPOCHS, of both kinds of product."""
    return vit_run(courses(*blocks), steps=STEPS, **options)


def test_blocks_and_heads_are_those_of_b7_to_b9(table, verdict, evidence) -> None:
    networks = {
        (claim, each["network"]): each["value"]
        for claim in ("B7", "B8", "B9")
        for each in verdict("boix2023/vit-cifar10", claim)["networks"]
    }
    judged = table(vit.growth).rows[0]
    above = table(vit.low_ranks).rows[-1]
    for scale, blocks, heads in zip(vit.SCALES, judged[1:], above[1:], strict=True):
        assert blocks / 6 == pytest.approx(networks["B7", f"vit/scale-{scale:g}, K-Q"])
        assert 1 - heads / 48 == pytest.approx(networks["B9", f"vit/scale-{scale:g}, V-O"])
    _, *counts = table(vit.readings).rows[0][:3]
    for count, kind in zip(counts, ("K-Q", "V-O"), strict=True):
        assert count / 6 == pytest.approx(networks["B8", f"vit, {kind}"])
    stored = evidence("boix2023/vit-cifar10", "B8")
    found = [row for row in table(vit.starts).rows if row[1] != "median"]
    for (_, _, *values), (_, _, _, correlation, *by_scale) in zip(found, stored, strict=True):
        *ranks, rho = values[:5]
        assert (rho, *ranks[::-1]) == pytest.approx((correlation, *by_scale))


def test_growth_is_read_from_each_epoch_it_says(keep_vits) -> None:
    blocks = {
        "all along": [0, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "from 3 on": [0, 30, 20, 2, 3, 4, 5, 6, 7, 8],
        "from 6 on": [0, 30, 29, 28, 27, 26, 2, 3, 4, 5],
        "never": [0, 9, 8, 7, 6, 5, 4, 3, 2, 1],
    }
    keep_vits(*[run(*blocks.values())] * 4)
    found = {name: cells[0] for name, *cells in vit.growth().rows}
    assert found["from epoch 1, as judged"] == 1
    assert found["from epoch 3"] == 2
    assert found["from epoch 3, without"] == "block 3, block 4"
    assert found["from epoch 1 to the end"] == 1
    # With every epoch alike the long time after epoch 12 decides.
    assert found["from epoch 1, every epoch alike"] == 3
    assert found["snapshots that are judged"] == 9
    assert found["of these of epochs 1 to 4"] == 4


def test_the_window_is_set_against_epochs_1_and_3(keep_vits) -> None:
    blocks = (
        [0, 9, 4, 7, 7, 7, 7, 7, 7, 6],  # below epochs 1 and 3, above epoch 2
        [0, 5, 9, 4, 4, 4, 4, 4, 4, 6],  # above both, below epoch 2
        [0, 5, 9, 7, 4, 4, 4, 4, 4, 6],  # above epoch 1, below epochs 2 and 3
    )
    keep_vits(*[run(*blocks)] * 4)
    found = {name: cells[0] for name, *cells in vit.early_ranks().rows}
    assert found["window ends below epoch 1"] == "1 of 3"
    assert found["window ends above epoch 3"] == "1 of 3"
    assert found["rank by block, first snapshot"] == "5 to 9"
    assert found["epoch 3"] == "4 to 7" and found["end of training, blocks 1 to 4"] == "6"
    assert found["epochs of the lowest V-O"] == "2 to 4"


def test_the_size_of_a_change_is_its_norm(keep_vits) -> None:
    ds = run([0, 4, 16, *[16] * 7], size=0.5, start=16)  # four, then sixteen values of 1/2
    keep_vits(*[ds] * 4)
    assert vit.relative_size(0.1, 1) == pytest.approx(1 / 4)
    assert vit.relative_size(0.1, 2) == pytest.approx(1 / 2)


def heads(*ranks: int) -> xr.Dataset:
    """One block whose heads end at these."""
    kq = np.ones((2, 1, len(ranks)), int)
    kq[-1, 0] = ranks
    return vit_run(kq)


def test_the_error_is_that_of_a_mean_over_heads_below_scale_1(keep_vits) -> None:
    keep_vits(heads(1, 30, 1, 30), heads(2, 4, 2, 4), heads(3, 3, 3, 3), heads(1, 1, 1, 5))
    first = vit.starts().rows[0]
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
    assert vit.starts().rows[1][:6] == ("K-Q", "median", *map(pytest.approx, (15.5, 3, 3, 2)))


def test_ranks_are_read_at_epoch_126(keep_vits) -> None:
    def ds(at_12: int, at_126: int, end: int) -> xr.Dataset:
        return run([0, *[1] * 6, at_12, at_126, end])

    keep_vits(ds(1, 8, 5), ds(2, 7, 6), ds(3, 6, 7), ds(4, 5, 8))
    found = {name: cells for name, *cells in vit.readings().rows}
    assert found["at epoch 126"] == [1, 1, "8", "7", "6", "5"]
    assert found["at the end"] == [0, 0, "5", "6", "7", "8"]
    assert found["effective rank, end"] == found["at the end"]


def test_heads_above_a_quarter_are_followed(keep_vits) -> None:
    vo = courses([0, *[8] * 9], [0, *[8] * 7, 2, 2])  # of 16: a half, and an eighth
    ds = vit_run(np.ones_like(vo), vo, steps=STEPS)
    keep_vits(*[ds.assign(validation_accuracy=("step", np.ones(len(STEPS))))] * 4)
    found = vit.exceptions_over_time()
    assert "at the end: 0.5; the same heads from epoch 126 on" in found.title
    by_epoch = {row[0]: row[1:5] for row in found.rows}
    assert by_epoch["12"] == (4, "1, 2", False, 0.5)
    assert by_epoch["126"] == (2, "1", True, 0.5)
    largest = {name: cells[0] for name, *cells in vit.low_ranks().rows}
    assert largest == {
        "K-Q, largest": pytest.approx(1 / 16),
        "V-O, largest": pytest.approx(1 / 2),
        "V-O, median": pytest.approx((1 / 2 + 1 / 8) / 2),
        "V-O, heads above 0.25": 2,
    }


def test_heads_that_are_never_above_a_quarter_are_said_so(keep_vits) -> None:
    ds = run([0, *[1] * 9]).assign(validation_accuracy=("step", np.ones(len(STEPS))))
    keep_vits(*[ds] * 4)
    assert "at the end: -; the same heads all along" in vit.exceptions_over_time().title
