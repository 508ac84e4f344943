"""Claim B7 on changes whose stable ranks are chosen."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.vit_runs import EPOCHS, STEPS_PER_EPOCH, courses, vit_run
from lab.papers.boix2023.vit_verdicts import EXPERIMENT, both, verdict, vit, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.papers.boix2023.claims.growth import B7, B7_FIRST
from rankscope.lab.papers.boix2023.runs import stop_of
from rankscope.lab.running.run_key import RunKey

UP, DOWN = (0, 1, 2, 3, 4, 5), (0, 5, 4, 3, 2, 1)
STOP = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 2 * STEPS_PER_EPOCH}}
RULES = pytest.mark.parametrize("rule", [B7, B7_FIRST], ids=lambda rule: rule.claim)


def growth(ds: xr.Dataset, rule: Rule = B7) -> Verdict:
    return verdict(rule, {vit(1.0): ds})


def slow(rate: float) -> dict:
    """A declaration whose learning rates sum to 2.5e-3 after 2.5e-3 / rate steps."""
    return EPOCHS | {"optimizer": {"class": "AdamW", "rate": rate}}


@RULES
def test_ranks_that_grow_in_every_block(rule: Rule) -> None:
    judged = growth(vit_run(courses(*[UP] * 6)), rule)
    assert both(judged) == ("holds", 1.0)
    assert all(network.experiment == EXPERIMENT for network in judged.networks)
    assert len(judged.tables[0].rows) == 2 * 3 * 6
    place = ("vit-cifar10: vit, scale 1, K-Q", 0, 1, "epoch 1")
    cells = (1.0, 5.0, 5.0, 1.0) if rule is B7 else (1.0, "epoch 5", 5.0, 5.0, 1.0)
    assert judged.tables[0].rows[0] == (*place, *cells)


@RULES
@pytest.mark.parametrize(
    ("falling", "blocks", "expected"),
    [(1, 6, "holds"), (2, 6, "fails"), (2, 12, "holds"), (3, 12, "fails")],
)
def test_five_sixths_of_the_blocks_decide(
    falling: int, blocks: int, expected: str, rule: Rule
) -> None:
    judged = growth(vit_run(courses(*[DOWN] * falling, *[UP] * (blocks - falling))), rule)
    assert both(judged) == (expected, pytest.approx(1 - falling / blocks))
    named = ", ".join(f"block {block}" for block in range(1, falling + 1))
    assert judged.tables[1].rows[0][2] == f"seed 0 1 2: {named}"


@RULES
@pytest.mark.parametrize(("course", "met"), [((2, 1, 4, 3, 5), True), ((1, 3, 4, 2, 5), False)])
def test_spearman_of_0_8_is_enough(course: Sequence[int], met: bool, rule: Rule) -> None:
    """Of five places 1 - sum(d^2) / 20: d^2 sums to 4 and to 6."""
    judged = growth(vit_run(courses((0, *course))), rule)
    assert both(judged)[1] == float(met)
    assert judged.tables[0].rows[0][-1] == pytest.approx(0.8 if met else 0.7)


@pytest.mark.parametrize(
    ("course", "met"),
    [
        ((20, 21, 22, 23), True),  # 1.15 times
        ((20, 20, 21, 22), False),  # 1.1 times
        ((20, 21, 24, 23), True),  # 0.8, and 1.15 times
        ((23, 24, 25, 26), False),
        ((20, 22, 25, 21), False),  # 0.4
    ],
)
def test_growth_by_15_percent_is_enough_and_less_is_not(course: Sequence[int], met: bool) -> None:
    ds = vit_run(courses((0, *course)))
    assert both(growth(ds))[0] == ("holds" if met else "fails")


def test_steady_growth_and_enough_of_it_are_asked_of_the_same_block() -> None:
    steady, jump = (20, 20, 21, 22), (10, 14, 16, 12)
    ds = vit_run(courses((0, *steady), (0, *jump)))
    assert both(growth(ds)) == ("fails", 0.0)


@RULES
def test_products_are_judged_apart(rule: Rule) -> None:
    judged = growth(vit_run(courses(UP), courses(DOWN)), rule)
    assert words(judged) == {"vit, scale 1, K-Q": "holds", "vit, scale 1, V-O": "fails"}


@RULES
def test_heads_are_averaged(rule: Rule) -> None:
    """One head falls by 1 where the other grows by 3."""
    falling, growing = courses((0, 5, 4, 3), heads=1), courses((0, 1, 4, 7), heads=1)
    judged = growth(vit_run(np.concatenate([falling, growing], axis=2)), rule)
    assert both(judged)[1] == 1 and judged.tables[0].rows[0][4] == 3.0


def test_only_scale_one_is_judged() -> None:
    up, down = vit_run(courses(UP)), vit_run(courses(DOWN))
    judged = verdict(B7, {vit(1.0): up, vit(0.1): down})
    assert words(judged) == {"vit, scale 1, K-Q": "holds", "vit, scale 1, V-O": "holds"}
    assert len(verdict(B7_FIRST, {vit(1.0): up, vit(0.1): down}).networks) == 4


@pytest.mark.parametrize(
    ("rate", "word", "begin"),
    [
        (2.5e-4, "fails", "epoch 1"),  # the dip is within the window
        (1.25e-4, "holds", "epoch 2"),
        (0.9e-4, "holds", "epoch 3"),
        (0.7e-4, "no data", ""),  # two snapshots are left
        (1e-6, "no data", ""),
    ],
)
def test_the_window_is_from_a_sum_of_learning_rates_to_the_end(
    rate: float, word: str, begin: str
) -> None:
    """The rank dips to 2 at epoch 2. The loss settles at epoch 3, which does not matter."""
    ranks, loss = courses((0, 9, 2, 3, 4, 5)), [1, 0.9, 0.5, 5e-4, 1e-4, 1e-4]
    judged = growth(vit_run(ranks, loss=loss, declaration=slow(rate)))
    assert both(judged)[0] == word
    if begin:
        assert judged.tables[0].rows[0][3] == begin and judged.tables[0].rows[0][5] == 5.0
    else:
        few = "2 of the 3" if rate == 0.7e-4 else "0 of the 3"
        assert judged.remarks[0] == (
            f"{EXPERIMENT}: vit, scale 1, seed 0 has {few} snapshots that it takes in the window"
        )


def test_the_first_rule_reads_from_epoch_one_to_a_settled_loss() -> None:
    ranks, steps = courses((0, 9, 1, 2, 3, 1)), [0, 5, 10, 20, 30, 40]
    loss = [1, 0.9, 0.5, 0.1, 5e-4, 1e-4]
    judged = growth(vit_run(ranks, steps=steps, loss=loss), B7_FIRST)
    assert both(judged) == ("holds", 1.0)
    assert judged.tables[0].rows[0][3:] == ("epoch 1", 1.0, "epoch 3", 3.0, 1.0, 1.0)
    assert not any("never below" in remark for remark in judged.remarks)
    unsettled = growth(vit_run(ranks, steps=steps, loss=[1, 0.9, 0.5, 0.1, 5e-2, 2e-2]), B7_FIRST)
    assert both(unsettled)[0] == "fails"
    assert unsettled.remarks[0] == (
        f"{EXPERIMENT}: vit, scale 1, seed 0 ends at training loss 0.02, never below 0.001: "
        "judged to the end"
    )


def test_too_short_a_window_tells_the_first_rule_nothing() -> None:
    judged = growth(vit_run(courses(UP), loss=[1, 0.1, 1e-4, 0, 0, 0]), B7_FIRST)
    assert both(judged) == ("no data", None)
    assert judged.remarks[0] == (
        f"{EXPERIMENT}: vit, scale 1, seed 0 has 2 of the 3 snapshots that it takes in the window"
    )


@RULES
@pytest.mark.parametrize(
    ("falling", "unmeasured", "expected"),
    [(0, 1, "holds"), (1, 1, "no data"), (0, 5, "no data"), (2, 1, "fails")],
)
def test_a_block_with_a_head_that_was_not_measured_may_be_either(
    falling: int, unmeasured: int, expected: str, rule: Rule
) -> None:
    ranks = courses(*[DOWN] * falling, *[UP] * (6 - falling)).astype(float)
    ranks[3, 6 - unmeasured :, 0] = np.nan
    judged = growth(vit_run(ranks), rule)
    assert both(judged) == (expected, pytest.approx((6 - falling - unmeasured) / 6))
    named = ", ".join(f"block {block}" for block in range(7 - unmeasured, 7))
    assert judged.tables[1].rows[0][3] == f"seed 0 1 2: {named}"


def test_a_scale_at_which_every_seed_collapsed_has_no_data_and_is_shown() -> None:
    low = courses((0, 1, 2, 3, 4))
    runs = {vit(1.0): vit_run(low), vit(0.01): vit_run(low, loss=[1.0] * 5)}
    judged = verdict(B7_FIRST, runs)
    assert [network.word for network in judged.networks] == ["holds"] * 2 + ["no data"] * 2
    well_row, ill_row = judged.tables[0].rows[0], judged.tables[0].rows[6]
    assert well_row[-1] is None
    assert ill_row == ("vit-cifar10: vit, scale 0.01, K-Q", *well_row[1:-1], "collapsed")
    assert judged.remarks[-3:] == tuple(
        f"{EXPERIMENT}: vit, scale 0.01, seed {seed} is left out: "
        "training loss 1, a constant predictor's is 1"
        for seed in range(3)
    )
    assert both(growth(vit_run(low, loss=[1.0] * 5)))[0] == "no data"


@RULES
def test_a_run_that_was_stopped_is_said_to_be(rule: Rule) -> None:
    stopped = vit_run(courses(UP), declaration=EPOCHS | STOP, stopped_at=143 * STEPS_PER_EPOCH)
    remarks = verdict(rule, {vit(1.0): stopped}, seeds=1).remarks
    assert sum(remark.endswith(stop_of(stopped)) for remark in remarks) == 1


@RULES
def test_networks_of_one_or_two_experiments_stay_apart(rule: Rule) -> None:
    places = {("a", "vit"): UP, ("b", "vit"): DOWN, ("b", "depth-3"): UP}
    runs = {
        RunKey(network, {"scale": 1.0}, experiment=experiment): vit_run(courses(course))
        for (experiment, network), course in places.items()
    }
    networks = verdict(rule, runs).networks
    assert {(judged.experiment, judged.network): judged.word for judged in networks} == {
        place: "holds" if course is UP else "fails" for place, course in places.items()
    }
    assert len(networks) == 6
