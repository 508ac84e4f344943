"""Claims B7-B9 on changes whose stable ranks are chosen."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.vit_runs import EPOCHS, STEPS_PER_EPOCH, courses, vit_run
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.tally import Tally
from rankscope.lab.judging.verdict import Verdict, Word
from rankscope.lab.papers.boix2023.claims.vits import (
    B7,
    B8,
    B8_SETTLED,
    B9,
    RULES,
    share_of_all,
)
from rankscope.lab.papers.boix2023.runs import stop_of
from rankscope.lab.running.run_key import RunKey

UP, DOWN = (0, 1, 2, 3, 4, 5), (0, 5, 4, 3, 2, 1)
STOP = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 2 * STEPS_PER_EPOCH}}
EXPERIMENT = "boix2023/vit-cifar10"


def vit(init_scale: float) -> RunKey:
    return RunKey("vit", {"scale": init_scale}, experiment=EXPERIMENT)


def verdict(rule: Rule, runs: dict[RunKey, xr.Dataset], *, seeds: int = 3) -> Verdict:
    """Judge runs that are the same in every seed."""
    return judge(
        rule, AvailableRuns({key: dict.fromkeys(range(seeds), ds) for key, ds in runs.items()})
    )


def growth(ds: xr.Dataset) -> Verdict:
    return verdict(B7, {vit(1.0): ds})


def words(judged: Verdict) -> dict[str, Word]:
    return {network.label: network.word for network in judged.networks}


def both(judged: Verdict) -> tuple[Word, float | None]:
    """Return word and value, which are the same for K-Q and V-O."""
    kq, vo = judged.networks
    assert (kq.part, vo.part, kq.word, kq.value) == ("K-Q", "V-O", vo.word, vo.value)
    return kq.word, kq.value


@pytest.mark.parametrize(
    ("met", "unmet", "unknown", "share", "expected"),
    [
        (5, 1, 0, 5 / 6, True),
        (4, 2, 0, 4 / 6, False),
        (5, 0, 1, 5 / 6, True),  # whatever the sixth is
        (4, 1, 1, 4 / 6, None),
        (1, 0, 5, 1 / 6, None),
        (3, 2, 1, 3 / 6, False),  # whatever the sixth is
        (0, 0, 6, None, None),
    ],
)
def test_shares_are_of_all(
    met: int, unmet: int, unknown: int, share: float | None, expected: bool | None
) -> None:
    counted = ("met",) * met + ("unmet",) * unmet
    tally = Tally(counted, counted[met:], ("unknown",) * unknown)
    assert share_of_all(tally, 5 / 6) == (share, expected)


def test_ranks_that_grow_in_every_block() -> None:
    judged = growth(vit_run(courses(*[UP] * 6)))
    assert both(judged) == ("holds", 1.0)
    assert all(network.experiment == EXPERIMENT for network in judged.networks)
    assert judged.tables[0].rows[0] == (
        "vit, scale 1, K-Q", 0, 1, "epoch 1", 1.0, "epoch 5", 5.0, 5.0, 1.0,
    )  # fmt: skip
    assert len(judged.tables[0].rows) == 2 * 3 * 6


@pytest.mark.parametrize(
    ("falling", "of", "expected"),
    [(1, 6, "holds"), (2, 6, "fails"), (2, 12, "holds"), (3, 12, "fails")],
)
def test_five_sixths_of_the_blocks_decide(falling: int, of: int, expected: str) -> None:
    judged = growth(vit_run(courses(*[DOWN] * falling, *[UP] * (of - falling))))
    assert both(judged) == (expected, pytest.approx(1 - falling / of))
    named = ", ".join(f"block {block}" for block in range(1, falling + 1))
    assert judged.tables[1].rows[0][2] == f"seed 0 1 2: {named}"


@pytest.mark.parametrize(("course", "met"), [((2, 1, 4, 3, 5), True), ((1, 3, 4, 2, 5), False)])
def test_spearman_of_0_8_is_enough(course: Sequence[int], met: bool) -> None:
    """Of five places 1 - sum(d^2) / 20: d^2 sums to 4 and to 6."""
    judged = growth(vit_run(courses((0, *course))))
    assert both(judged)[1] == float(met)
    assert judged.tables[0].rows[0][-1] == pytest.approx(0.8 if met else 0.7)


def test_products_are_judged_apart() -> None:
    judged = growth(vit_run(courses(UP), courses(DOWN)))
    assert words(judged) == {"vit, scale 1, K-Q": "holds", "vit, scale 1, V-O": "fails"}


def test_heads_are_averaged() -> None:
    """One head falls by 1 where the other grows by 3."""
    falling, growing = courses((0, 5, 4, 3), heads=1), courses((0, 1, 4, 7), heads=1)
    judged = growth(vit_run(np.concatenate([falling, growing], axis=2)))
    assert both(judged)[1] == 1 and judged.tables[0].rows[0][4] == 3.0


def test_only_what_lies_between_epoch_one_and_a_settled_loss_counts() -> None:
    ranks, steps = courses((0, 9, 1, 2, 3, 1)), [0, 5, 10, 20, 30, 40]
    loss = [1, 0.9, 0.5, 0.1, 5e-4, 1e-4]
    judged = growth(vit_run(ranks, steps=steps, loss=loss))
    assert both(judged) == ("holds", 1.0)
    assert judged.tables[0].rows[0][3:] == ("epoch 1", 1.0, "epoch 3", 3.0, 1.0, 1.0)
    assert not any("never below" in remark for remark in judged.remarks)
    unsettled = growth(vit_run(ranks, steps=steps, loss=[1, 0.9, 0.5, 0.1, 5e-2, 2e-2]))
    assert both(unsettled)[0] == "fails"
    assert unsettled.remarks[0] == (
        f"{EXPERIMENT}: vit, scale 1, seed 0 ends at training loss 0.02, never below 0.001: "
        "judged to the end"
    )


def test_too_short_a_window_tells_nothing() -> None:
    judged = growth(vit_run(courses(UP), loss=[1, 0.1, 1e-4, 0, 0, 0]))
    assert both(judged) == ("no data", None)
    assert judged.remarks[0] == (
        f"{EXPERIMENT}: vit, scale 1, seed 0 has 2 of the 3 snapshots that it takes in the window"
    )


@pytest.mark.parametrize(
    ("falling", "unmeasured", "expected"),
    [(0, 1, "holds"), (1, 1, "no data"), (0, 5, "no data"), (2, 1, "fails")],
)
def test_a_block_with_a_head_that_was_not_measured_may_be_either(
    falling: int, unmeasured: int, expected: str
) -> None:
    ranks = courses(*[DOWN] * falling, *[UP] * (6 - falling)).astype(float)
    ranks[3, 6 - unmeasured :, 0] = np.nan
    judged = growth(vit_run(ranks))
    assert both(judged) == (expected, pytest.approx((6 - falling - unmeasured) / 6))
    named = ", ".join(f"block {block}" for block in range(7 - unmeasured, 7))
    assert judged.tables[1].rows[0][3] == f"seed 0 1 2: {named}"


@pytest.mark.parametrize("rule", [B7, B9])
def test_a_scale_at_which_every_seed_collapsed_has_no_data_and_is_shown(rule: Rule) -> None:
    low = courses((0, 1, 2, 3, 4))
    judged = verdict(rule, {vit(1.0): vit_run(low), vit(0.01): vit_run(low, loss=[1.0] * 5)})
    assert [network.word for network in judged.networks] == ["holds"] * 2 + ["no data"] * 2
    well_row, ill_row = judged.tables[0].rows[0], judged.tables[0].rows[6]
    assert well_row[-1] is None
    assert ill_row == ("vit, scale 0.01, K-Q", *well_row[1:-1], "collapsed")
    assert judged.remarks[-3:] == tuple(
        f"{EXPERIMENT}: vit, scale 0.01, seed {seed} is left out: "
        "training loss 1, a constant predictor's is 1"
        for seed in range(3)
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.claim)
def test_a_run_that_was_stopped_is_said_to_be(rule: Rule) -> None:
    stopped = vit_run(courses(UP), declaration=EPOCHS | STOP, stopped_at=143 * STEPS_PER_EPOCH)
    ds = vit_run(courses(UP))
    remarks = verdict(rule, {vit(1.0): ds, vit(0.3): ds, vit(0.1): stopped}, seeds=1).remarks
    assert sum(remark.endswith(stop_of(stopped)) for remark in remarks) == 1


def by_scale(ends: dict[float, int], collapsed: Sequence[float] = ()) -> Verdict:
    runs = {
        vit(init_scale): vit_run(
            courses((0, end)), loss=[1, 1.0 if init_scale in collapsed else 0.1]
        )
        for init_scale, end in ends.items()
    }
    return verdict(B8, runs)


@pytest.mark.parametrize(
    ("ends", "expected", "spearman"),
    [
        ({1: 9, 0.3: 5, 0.1: 3, 0.03: 2}, "holds", 1.0),
        ({1: 9, 0.3: 2, 0.1: 3, 0.03: 1}, "holds", 0.8),
        ({1: 3, 0.3: 2, 0.1: 9, 0.03: 1}, "fails", 0.4),
        ({1: 2, 0.3: 3, 0.1: 5, 0.03: 9}, "fails", -1.0),
        ({1: 4, 0.3: 4, 0.1: 4, 0.03: 4}, "fails", 0.0),
    ],
)
def test_smaller_scales_have_lower_ranks(
    ends: dict[float, int], expected: str, spearman: float
) -> None:
    judged = by_scale(ends)
    assert words(judged) == {"vit, K-Q": expected, "vit, V-O": expected}
    table = judged.tables[0]
    ranks = tuple(f"rank at scale {scale:g}" for scale in (0.03, 0.1, 0.3, 1))
    assert table.columns == ("network", "seed", "block", *ranks, "Spearman")
    assert table.rows[0][:3] == ("vit, K-Q", 0, 1)
    assert table.rows[0][3:7] == tuple(float(ends[scale]) for scale in sorted(ends))
    assert table.rows[0][7] == pytest.approx(spearman)


def test_two_scales_that_did_not_collapse_are_not_enough() -> None:
    judged = by_scale({1: 9, 0.1: 3, 0.01: 2}, collapsed=[0.01])
    assert both(judged) == ("no data", None)
    title = f"{EXPERIMENT}: vit, seed 0"
    assert judged.remarks[:2] == (
        f"{title} at scale 0.01 collapsed: training loss 1, a constant predictor's is 1",
        f"{title} has 2 of the 3 scales that it takes",
    )


def test_a_collapsed_scale_is_in_no_trend_but_in_the_table() -> None:
    judged = by_scale({1: 9, 0.3: 5, 0.1: 3, 0.01: 12}, collapsed=[0.01])
    assert both(judged)[0] == "holds"
    assert judged.tables[0].rows[0][3:] == (12.0, 3.0, 5.0, 9.0, 1.0)


def test_scales_are_compared_equally_long_after_they_settled() -> None:
    """Scale 1 settles at epoch 1 of 6, 0.1 at epoch 2 and stops 2 epochs later, 0.01 never."""
    declaration, loss = EPOCHS | STOP, [0.5, *[1e-4] * 6]
    middle = vit_run(courses((0, 9, 9, 9, 5)), loss=[0.5, *loss[:4]], declaration=declaration)
    runs = {
        vit(0.1): middle.assign_attrs(stopped_at=4 * STEPS_PER_EPOCH),
        vit(0.01): vit_run(courses((0, 9, 9, 4)), declaration=declaration),
    }
    # Scale 1 at epoch 1 + 2, where its rank is 6; at its end it is 1.
    early = {vit(1.0): vit_run(courses((0, 9, 9, 6, 1, 1, 1)), loss=loss), **runs}
    judged = verdict(B8_SETTLED, early)
    assert both(judged)[0] == "holds" and both(verdict(B8, early))[0] == "fails"
    assert judged.tables[0].rows[0] == ("vit, K-Q", 0, 1, 4.0, 5.0, 6.0, 1.0)
    title = f"{EXPERIMENT}: vit, seed 0 at scale"
    assert judged.reason == B8_SETTLED.reason
    assert judged.remarks[:4] == (
        f"{title} 0.01 ends at training loss 0.1, never below 0.001: read at its end",
        f"{title} 0.1 is read at epoch 4",
        f"{title} 0.1 stopped at epoch 4, at the first snapshot 2 epochs or more "
        "after one with training loss < 0.001",
        f"{title} 1 is read at epoch 3",
    )
    late = {vit(1.0): vit_run(courses((0, 1, 1, 1, 9, 9, 9)), loss=loss), **runs}
    assert both(verdict(B8_SETTLED, late))[0] == "fails"
    assert both(verdict(B8, late))[0] == "holds"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.claim)
def test_networks_of_one_or_two_experiments_stay_apart(rule: Rule) -> None:
    grows, falls = {1.0: 4, 0.1: 3, 0.01: 2}, {1.0: 7, 0.1: 8, 0.01: 9}
    places = {("a", "vit"): "holds", ("b", "vit"): "fails", ("b", "depth-3"): "holds"}
    runs = {}
    for (experiment, network), word in places.items():
        course, ends = ((1, 2), grows) if word == "holds" else ((12, 11), falls)
        for init_scale, end in ends.items():
            key = RunKey(network, {"scale": init_scale}, experiment=experiment)
            runs[key] = vit_run(courses((0, *course, end)))
    networks = verdict(rule, runs).networks
    assert {(judged.experiment, judged.network): judged.word for judged in networks} == places
    assert len(networks) == (6 if rule in (B8, B8_SETTLED) else 18)


@pytest.mark.parametrize(
    ("large", "unchanged", "expected"),
    [
        (0, 0, "holds"),
        (1, 0, "holds"),
        (2, 0, "fails"),
        (0, 1, "holds"),
        (1, 1, "no data"),
        (2, 1, "fails"),
    ],
)
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_the_change_has_a_quarter_of_the_initial_rank(
    large: int, unchanged: int, expected: str, size: float
) -> None:
    """4 of 16 is a quarter, and 5 is more, in `large` of 20 heads; nothing has no stable rank."""
    end = np.full((4, 5), 4)
    end.flat[: large + unchanged] = [5] * large + [0] * unchanged
    judged = verdict(B9, {vit(1.0): vit_run(np.stack([0 * end, end]), size=size)})
    assert both(judged) == (expected, (20 - large - unchanged) / 20)
    changed = end[0][end[0] > 0]
    row = (changed.mean(), 16.0, changed.max() / 16)
    assert judged.tables[0].rows[0][3:] == pytest.approx(row)
    exceptions = "seed 0 1 2: " + ", ".join(f"1.{head}" for head in range(1, large + 1))
    assert [row[2] for table in judged.tables[1:] for row in table.rows] == (
        [exceptions if large else "-"] * 2 if large or unchanged else []
    )
