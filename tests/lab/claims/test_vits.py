"""Claims B7-B9 on changes whose stable ranks are chosen."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from lab.claims.training_runs import Absent, seeds
from lab.vit_runs import EPOCHS, STEPS_PER_EPOCH, courses, vit_run
from rankscope.lab.claims.vits import (
    CLAIMS,
    change_grows_in_rank,
    change_has_low_rank,
    smaller_start_lower_rank,
    smaller_start_lower_settled_rank,
)
from rankscope.lab.experiment import Claim, MissingRun
from rankscope.lab.verdict import Verdict

UP, DOWN = (0, 1, 2, 3, 4, 5), (0, 5, 4, 3, 2, 1)


def growth(ds: xr.Dataset) -> Verdict:
    return change_grows_in_rank({"vit/scale-1": seeds(ds)})


def holds(judged: Verdict) -> dict[str, str]:
    return {network.network: network.holds for network in judged.networks}


def test_ranks_that_grow_in_every_block() -> None:
    judged = growth(vit_run(courses(*[UP] * 6)))
    assert (judged.holds, judged.value) == ("yes", 1.0)
    assert holds(judged) == {"vit/scale-1, K-Q": "yes", "vit/scale-1, V-O": "yes"}
    assert judged.tables[0].rows[0] == (
        "vit/scale-1, K-Q", 0, 1, "epoch 1", 1.0, "epoch 5", 5.0, 5.0, 1.0,
    )  # fmt: skip
    assert len(judged.tables[0].rows) == 2 * 3 * 6


@pytest.mark.parametrize(
    ("falling", "of", "expected"), [(1, 6, "yes"), (2, 6, "no"), (2, 12, "yes"), (3, 12, "no")]
)
def test_five_sixths_of_the_blocks_decide(falling: int, of: int, expected: str) -> None:
    judged = growth(vit_run(courses(*[DOWN] * falling, *[UP] * (of - falling))))
    assert judged.holds == expected
    assert judged.value == pytest.approx(1 - falling / of)
    named = ", ".join(f"block {block}" for block in range(1, falling + 1))
    assert judged.tables[1].rows[0][2] == f"seed 0 1 2: {named}"


@pytest.mark.parametrize(("course", "met"), [((2, 1, 4, 3, 5), True), ((1, 3, 4, 2, 5), False)])
def test_spearman_of_0_8_is_enough(course: Sequence[int], met: bool) -> None:
    """Of five places 1 - sum(d^2) / 20: d^2 sums to 4 and to 6."""
    judged = growth(vit_run(courses((0, *course))))
    assert judged.value == float(met)
    assert judged.tables[0].rows[0][-1] == pytest.approx(0.8 if met else 0.7)


def test_products_are_judged_apart() -> None:
    judged = growth(vit_run(courses(UP), courses(DOWN)))
    assert judged.holds == "no"
    assert holds(judged) == {"vit/scale-1, K-Q": "yes", "vit/scale-1, V-O": "no"}


def test_heads_are_averaged() -> None:
    """One head falls by 1 where the other grows by 3."""
    ranks = np.stack([courses((0, 5, 4, 3), heads=1), courses((0, 1, 4, 7), heads=1)], -1)[
        ..., 0, :
    ]
    assert growth(vit_run(ranks)).value == 1
    assert growth(vit_run(ranks)).tables[0].rows[0][4] == 3.0


def test_only_what_lies_between_epoch_one_and_a_settled_loss_counts() -> None:
    ranks, steps = courses((0, 9, 1, 2, 3, 1)), [0, 5, 10, 20, 30, 40]
    loss = [1, 0.9, 0.5, 0.1, 5e-4, 1e-4]
    judged = growth(vit_run(ranks, steps=steps, loss=loss))
    assert (judged.holds, judged.value) == ("yes", 1.0)
    assert judged.tables[0].rows[0][3:] == ("epoch 1", 1.0, "epoch 3", 3.0, 1.0, 1.0)
    assert not any("never below" in line for line in judged.evidence)
    unsettled = growth(vit_run(ranks, steps=steps, loss=[1, 0.9, 0.5, 0.1, 5e-2, 2e-2]))
    assert unsettled.holds == "no"
    assert unsettled.evidence[0] == (
        "vit/scale-1, seed 0 ends at training loss 0.02, never below 0.001: judged to the end"
    )


def test_too_short_a_window_tells_nothing() -> None:
    judged = growth(vit_run(courses(UP), loss=[1, 0.1, 1e-4, 0, 0, 0]))
    assert (judged.holds, judged.value) == ("undecided", None)
    assert judged.evidence[0] == (
        "vit/scale-1, seed 0 has 2 of the 3 snapshots that it takes in the window"
    )


@pytest.mark.parametrize(
    ("falling", "unmeasured", "expected"),
    [(0, 1, "yes"), (1, 1, "undecided"), (0, 5, "undecided"), (2, 1, "no")],
)
def test_a_block_with_a_head_that_was_not_measured_may_be_either(
    falling: int, unmeasured: int, expected: str
) -> None:
    ranks = courses(*[DOWN] * falling, *[UP] * (6 - falling)).astype(float)
    ranks[3, 6 - unmeasured :, 0] = np.nan
    judged = growth(vit_run(ranks))
    assert judged.holds == expected
    assert judged.value == pytest.approx((6 - falling - unmeasured) / 6)
    named = ", ".join(f"block {block}" for block in range(7 - unmeasured, 7))
    assert judged.tables[1].rows[0][3] == f"seed 0 1 2: {named}"


@pytest.mark.parametrize(
    ("large", "unmeasured", "expected"), [(0, 1, "yes"), (1, 1, "undecided"), (2, 1, "no")]
)
def test_a_head_that_did_not_change_may_be_either(
    large: int, unmeasured: int, expected: str
) -> None:
    """Of 20 heads; nothing has no stable rank."""
    end = np.full((4, 5), 4)
    end.flat[: large + unmeasured] = [5] * large + [0] * unmeasured
    judged = change_has_low_rank({"vit/scale-1": seeds(vit_run(np.stack([0 * end, end])))})
    assert (judged.holds, judged.value) == (expected, (20 - large - unmeasured) / 20)


@pytest.mark.parametrize("claim", [change_grows_in_rank, change_has_low_rank])
def test_a_scale_at_which_every_seed_collapsed_takes_no_part_and_is_shown(claim: Claim) -> None:
    low = courses((0, 1, 2, 3, 4))
    well, ill = vit_run(low), vit_run(low, loss=[1.0] * 5)
    judged = claim({"vit/scale-1": seeds(well), "vit/scale-0.01": seeds(ill)})
    assert (judged.holds, judged.value) == ("yes", 1.0)
    assert holds(judged) == {"vit/scale-1, K-Q": "yes", "vit/scale-1, V-O": "yes"}
    well_row, ill_row = judged.tables[0].rows[0], judged.tables[0].rows[6]
    assert ill_row == ("vit/scale-0.01, K-Q (collapsed)", *well_row[1:])
    assert judged.evidence[-3:] == tuple(
        f"vit/scale-0.01, seed {seed} is left out: training loss 1, a constant predictor's is 1"
        for seed in range(3)
    )


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_a_run_that_was_stopped_is_said_to_be(claim: Claim) -> None:
    stop = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 50 * STEPS_PER_EPOCH}}
    ds = vit_run(courses(UP), declaration=EPOCHS | stop, stopped_at=143 * STEPS_PER_EPOCH)
    evidence = claim({"vit/scale-0.1": {0: ds}}).evidence
    said = (
        "stopped at epoch 143, at the first snapshot 50 epochs or more after one with "
        "training loss < 0.001"
    )
    assert sum(line.endswith(said) for line in evidence) == 1


def by_scale(ends: dict[float, int], collapsed: Sequence[float] = ()) -> Verdict:
    runs = {
        f"vit/scale-{scale:g}": seeds(
            vit_run(courses((0, end)), loss=[1, 1.0 if scale in collapsed else 0.1])
        )
        for scale, end in ends.items()
    }
    return smaller_start_lower_rank(runs)


@pytest.mark.parametrize(
    ("ends", "expected", "spearman"),
    [
        ({1: 9, 0.3: 5, 0.1: 3, 0.03: 2}, "yes", 1.0),
        ({1: 9, 0.3: 2, 0.1: 3, 0.03: 1}, "yes", 0.8),
        ({1: 3, 0.3: 2, 0.1: 9, 0.03: 1}, "no", 0.4),
        ({1: 2, 0.3: 3, 0.1: 5, 0.03: 9}, "no", -1.0),
        ({1: 4, 0.3: 4, 0.1: 4, 0.03: 4}, "no", 0.0),
    ],
)
def test_smaller_scales_have_lower_ranks(ends, expected: str, spearman: float) -> None:
    judged = by_scale(ends)
    assert holds(judged) == {"vit, K-Q": expected, "vit, V-O": expected}
    table = judged.tables[0]
    assert table.columns[3:] == ("Spearman", *(f"at scale {s:g}" for s in (0.03, 0.1, 0.3, 1)))
    assert table.rows[0][:3] == ("vit, K-Q", 0, 1)
    assert table.rows[0][3] == pytest.approx(spearman)
    assert table.rows[0][4:] == tuple(float(ends[scale]) for scale in sorted(ends))


def test_two_scales_that_did_not_collapse_are_not_enough() -> None:
    judged = by_scale({1: 9, 0.1: 3, 0.01: 2}, collapsed=[0.01])
    assert (judged.holds, judged.value) == ("undecided", None)
    assert judged.evidence[:2] == (
        "vit at scale 0.01, seed 0 collapsed: training loss 1, a constant predictor's is 1",
        "vit, seed 0 has 2 of the 3 scales that it takes",
    )


def test_a_collapsed_scale_is_in_no_trend_but_in_the_table() -> None:
    judged = by_scale({1: 9, 0.3: 5, 0.1: 3, 0.01: 12}, collapsed=[0.01])
    assert judged.holds == "yes"
    assert judged.tables[0].rows[0][3:] == (1.0, 12.0, 3.0, 5.0, 9.0)


STOP = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 2 * STEPS_PER_EPOCH}}


def settled_runs(*, default: Sequence[int]) -> dict[str, dict[int, xr.Dataset]]:
    """At scale 1 the loss settles at epoch 1 of 6; the others are stopped, or never settle."""
    loss = [0.5, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4]
    stopped = {"declaration": EPOCHS | STOP, "stopped_at": 4 * STEPS_PER_EPOCH}
    return {
        "vit/scale-1": seeds(vit_run(courses(default), loss=loss)),
        "vit/scale-0.1": seeds(
            vit_run(courses((0, 9, 9, 9, 5)), loss=loss[:1] * 2 + loss[2:5], **stopped)
        ),
        "vit/scale-0.01": seeds(vit_run(courses((0, 9, 9, 4)), declaration=EPOCHS | STOP)),
    }


def test_scales_are_compared_equally_long_after_they_settled() -> None:
    """Scale 1 at epoch 1 + 2, where its rank is 6; at its end it is 1."""
    runs = settled_runs(default=(0, 9, 9, 6, 1, 1, 1))
    judged = smaller_start_lower_settled_rank(runs)
    assert judged.holds == "yes" and smaller_start_lower_rank(runs).holds == "no"
    assert judged.tables[0].rows[0] == ("vit, K-Q", 0, 1, 1.0, 4.0, 5.0, 6.0)
    assert judged.evidence[0].startswith("a second rule")
    assert judged.evidence[1:5] == (
        "vit at scale 0.01, seed 0 ends at training loss 0.1, never below 0.001: read at its end",
        "vit at scale 0.1, seed 0 is read at epoch 4",
        "vit at scale 0.1, seed 0 stopped at epoch 4, at the first snapshot 2 epochs or more "
        "after one with training loss < 0.001",
        "vit at scale 1, seed 0 is read at epoch 3",
    )
    late = settled_runs(default=(0, 1, 1, 1, 9, 9, 9))
    judged = smaller_start_lower_settled_rank(late)
    assert judged.holds == "no" and smaller_start_lower_rank(late).holds == "yes"


def test_a_scale_that_other_seeds_have_is_left_empty() -> None:
    ends = {1: 9, 0.3: 5, 0.1: 3, 0.03: 2}
    runs = {
        f"vit/scale-{scale:g}": seeds(vit_run(courses((0, end))), 3 if scale > 0.1 else 1)
        for scale, end in ends.items()
    }
    runs["vit/scale-0.1"] = seeds(vit_run(courses((0, 3))))
    judged = smaller_start_lower_rank(runs)
    assert [row[4] for row in judged.tables[0].rows] == [2.0, None, None] * 2
    assert judged.holds == "yes"


def test_networks_have_trends_of_their_own() -> None:
    def run(network: str, scale: float, end: int) -> tuple[str, dict[int, xr.Dataset]]:
        return f"{network}/scale-{scale:g}", seeds(vit_run(courses((0, end))))

    up = [run("vit", scale, end) for scale, end in ((1, 3), (0.1, 2), (0.01, 1))]
    down = [run("depth-3", scale, end) for scale, end in ((1, 1), (0.1, 2), (0.01, 3))]
    assert holds(smaller_start_lower_rank(dict(up + down))) == {
        "vit, K-Q": "yes",
        "vit, V-O": "yes",
        "depth-3, K-Q": "no",
        "depth-3, V-O": "no",
    }


@pytest.mark.parametrize(
    ("large", "expected", "share"), [(0, "yes", 1.0), (1, "yes", 0.95), (2, "no", 0.9)]
)
def test_the_change_has_a_quarter_of_the_initial_rank(
    large: int, expected: str, share: float
) -> None:
    """4 of 16 is a quarter, and 5 is more, in `large` of 20 heads."""
    end = np.full((4, 5), 4)
    end.flat[:large] = 5
    judged = change_has_low_rank({"vit/scale-1": seeds(vit_run(np.stack([0 * end, end])))})
    assert (judged.holds, judged.value) == (expected, share)
    assert judged.tables[0].rows[0][3:] == (4 + large / 5, 16.0, (5 if large else 4) / 16)
    named = ", ".join(f"1.{head}" for head in range(1, large + 1))
    assert [row[2] for table in judged.tables[1:] for row in table.rows] == (
        [f"seed 0 1 2: {named}"] * 2 if large else []
    )


def test_the_size_of_the_change_does_not_matter() -> None:
    judged = change_has_low_rank({"vit/scale-1": seeds(vit_run(courses((0, 4)), size=1e-6))})
    assert judged.holds == "yes"


def test_without_a_change_nothing_is_told() -> None:
    judged = change_has_low_rank({"vit/scale-1": seeds(vit_run(courses((0, 0))))})
    assert (judged.holds, judged.value) == ("undecided", None)


@pytest.mark.parametrize(("key", "claim"), CLAIMS.items(), ids=CLAIMS.keys())
def test_without_runs_by_scale_claims_are_undecided(key: str, claim: Claim) -> None:
    judged = claim({"mlp/true-labels": seeds(vit_run(courses(UP)))})
    assert (judged.claim, judged.holds) == (key, "undecided")
    assert "there is none" in judged.evidence[0]


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_a_run_that_is_not_there_is_asked_for(claim: Claim) -> None:
    with pytest.raises(MissingRun):
        claim({"vit/scale-1": seeds(vit_run(courses(UP))), "vit/scale-0.1": Absent()})


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_one_seed_decides_nothing(claim: Claim) -> None:
    ends = {1: 4, 0.1: 3, 0.01: 2}
    runs = {f"vit/scale-{s:g}": {0: vit_run(courses((0, 1, 2, e)))} for s, e in ends.items()}
    judged = claim(runs)
    assert (judged.holds, judged.value) == ("undecided", 1.0)
