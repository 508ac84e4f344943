from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import table, verdict
from lab.papers.boix2023.vit_runs import STEPS_PER_EPOCH, courses, vit_run
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.claims.low_rank import B9_FIRST
from rankscope.lab.papers.boix2023.evidence import vit
from rankscope.lab.papers.boix2023.evidence.vit import VIT

STEPS = [STEPS_PER_EPOCH * epoch for epoch in (0, 1, 2, 3, 4, 12, 126, 200)]


def scaled(*datasets: xr.Dataset) -> Runs:
    """Return these runs at the initial scales 1, 0.1."""
    keys = [replace(VIT, variant={"scale": scale}) for scale in (1.0, 0.1)]
    return Runs({key: {0: ds} for key, ds in zip(keys, datasets, strict=True)})


def test_heads_above_a_quarter_are_those_of_b9() -> None:
    (share,) = (
        network.seeds[0].value  # the table is of the first seed
        for network in verdict("boix2023", B9_FIRST).networks
        if (network.experiment, network.variant, network.part)
        == (VIT.experiment, {"scale": 1.0}, "V-O")
    )
    heads = table(vit.exceptions_over_time).rows[-1][1]
    assert 1 - heads / 48 == pytest.approx(share)


def test_ranks_are_read_early_and_at_the_end() -> None:
    blocks = courses([0, 9, 1, 7, 1, 1, 1, 6], [0, 5, 1, 4, 1, 1, 1, 6])
    still = courses([0, *[3] * 7], [0, *[3] * 7])
    runs = scaled(vit_run(blocks, still, steps=STEPS), vit_run(still, blocks, steps=STEPS))
    made = vit.early_ranks(runs)
    assert made.columns == ("rank by block", "scale 1", "scale 0.1")
    assert [row[1:] for row in made.rows] == [("5 to 9", "3"), ("4 to 7", "3"), ("6", "3")]
    assert made.title.endswith(f"at step {STEPS[1]}")


@pytest.mark.parametrize(
    ("rank", "end", "at_12", "at_126"),
    [
        (8, "0.5", (4, "1, 2", False, 0.5), (2, "1", True, 0.5)),
        (2, "-", (2, "2", False, 0.5), (0, "-", True, 1 / 8)),
    ],
)
def test_heads_above_a_quarter_are_followed(rank, end, at_12, at_126) -> None:
    vo = courses([0, *[rank] * 7], [0, *[8] * 5, 2, 2])  # of 16: 8 is a half, 2 an eighth
    ds = vit_run(np.ones_like(vo), vo, steps=STEPS)
    ds = ds.assign(validation_accuracy=("step", np.ones(len(STEPS))))
    made = vit.exceptions_over_time(scaled(ds, ds))
    assert made.title.endswith(f"at the end: {end}")
    by_epoch = {row[0]: row[1:5] for row in made.rows}
    assert (by_epoch["12"], by_epoch["126"]) == (at_12, at_126)
