"""Claim B8 on changes whose ranks are chosen: r equal values have stable and effective rank r."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.vit_runs import EPOCHS, STEPS_PER_EPOCH, courses, vit_run
from lab.papers.boix2023.vit_verdicts import EXPERIMENT, both, verdict, vit, words
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.verdict import Verdict
from rankscope.lab.papers.boix2023.claims.init_scales import B8, B8_FIRST
from rankscope.lab.papers.boix2023.runs import stop_of
from rankscope.lab.running.run_key import RunKey

STOP = {"stop": {"class": "Settled", "loss": 1e-3, "steps": 2 * STEPS_PER_EPOCH}}
RULES = pytest.mark.parametrize("rule", [B8, B8_FIRST], ids=lambda rule: rule.claim)


def by_scale(
    ends: dict[float, int | Sequence[int]], collapsed: Sequence[float] = (), rule: Rule = B8
) -> Verdict:
    """Judge runs that end with these ranks, of one block or of several."""
    runs = {}
    for init_scale, end in ends.items():
        blocks = [(0, rank) for rank in ([end] if isinstance(end, int) else end)]
        loss = [1, 1.0 if init_scale in collapsed else 0.1]
        runs[vit(float(init_scale))] = vit_run(courses(*blocks), loss=loss)
    return verdict(rule, runs)


@pytest.mark.parametrize(
    ("ends", "expected", "first", "spearman"),
    [
        ({1: 9, 0.3: 5, 0.1: 3, 0.03: 2}, "holds", "holds", 1.0),
        ({1: 9, 0.3: 2, 0.1: 3, 0.03: 1}, "holds", "holds", 0.8),
        ({1: 3, 0.3: 2, 0.1: 9, 0.03: 1}, "fails", "fails", 0.4),
        ({1: 2, 0.3: 3, 0.1: 5, 0.03: 9}, "fails", "fails", -1.0),
        ({1: 4, 0.3: 4, 0.1: 4, 0.03: 4}, "fails", "fails", 0.0),
        # 17 of 20 is 0.85, and 18 is more
        ({1: 20, 0.3: 19, 0.1: 18, 0.03: 17}, "holds", "holds", 1.0),
        ({1: 21, 0.3: 20, 0.1: 19, 0.03: 18}, "fails", "holds", 1.0),
    ],
)
def test_smaller_scales_have_lower_ranks(
    ends: dict[float, int], expected: str, first: str, spearman: float
) -> None:
    for rule, word in ((B8, expected), (B8_FIRST, first)):
        judged = by_scale(ends, rule=rule)
        assert words(judged) == {"vit, K-Q": word, "vit, V-O": word}
        row, final = judged.tables[0].rows[0], tuple(float(ends[scale]) for scale in sorted(ends))
        assert row[:3] == ("vit-cifar10: vit, K-Q", 0, 1) and row[3:7] == final
        assert row[-1] == pytest.approx(spearman)
    columns = by_scale(ends).tables[0].columns
    scales = [f"at scale {scale:g}" for scale in (0.03, 0.1, 0.3, 1)]
    assert columns[3:] == (
        *(f"stable rank {scale}" for scale in scales),
        "smallest over scale 1",
        *(f"effective rank {scale}" for scale in scales),
        "Spearman",
    )


@RULES
@pytest.mark.parametrize(("falling", "word"), [(1, "holds"), (2, "fails")])
def test_five_sixths_of_the_blocks_decide(falling: int, word: str, rule: Rule) -> None:
    ends = {1.0: [9] * 6, 0.3: [5] * 6, 0.1: [3] * (6 - falling) + [12] * falling}
    assert both(by_scale(ends, rule=rule)) == (word, pytest.approx(1 - falling / 6))


def test_both_are_asked_of_the_same_block() -> None:
    """The first block falls enough and not in order, the second in order and not enough."""
    ends = {1.0: [20, 20], 0.3: [5, 19], 0.1: [6, 18], 0.03: [10, 18]}
    judged = by_scale(ends)
    assert both(judged) == ("fails", 0.0)
    assert judged.tables[0].rows[0][7] == 0.5 and judged.tables[0].rows[1][7] == 0.9


def test_the_order_is_that_of_effective_ranks_and_the_fall_that_of_stable_ranks() -> None:
    """Beside one value of 1, many of 0.1 add to the effective rank and little to the stable one."""
    tails = {1.0: 9, 0.3: 6, 0.1: 3, 0.03: 0}
    runs = {vit(scale): with_tail(vit_run(courses((0, 1))), tail) for scale, tail in tails.items()}
    judged = verdict(B8, runs)
    row = dict(zip(judged.tables[0].columns, judged.tables[0].rows[0], strict=True))
    assert row["Spearman"] == 1 and row["stable rank at scale 1"] == pytest.approx(1.09, rel=1e-4)
    assert row["effective rank at scale 1"] > 4
    assert row["smallest over scale 1"] == pytest.approx(1 / 1.09, rel=1e-4)
    assert both(judged)[0] == "fails" and both(verdict(B8_FIRST, runs))[0] == "holds"


def with_tail(ds: xr.Dataset, values: int) -> xr.Dataset:
    """Return the run with so many values of 0.1 after the first of each change at the end."""
    change = ds["product_change_singular_values"].to_numpy().copy()
    change[-1, :, 1 : 1 + values] = 0.1
    return ds.assign(product_change_singular_values=(("step", "product", "k"), change))


@RULES
def test_two_scales_that_did_not_collapse_are_not_enough(rule: Rule) -> None:
    judged = by_scale({1: 9, 0.1: 3, 0.01: 2}, collapsed=[0.01], rule=rule)
    assert both(judged) == ("no data", None)
    title = f"{EXPERIMENT}: vit, seed 0"
    assert judged.remarks[:2] == (
        f"{title} at scale 0.01 collapsed: training loss 1, a constant predictor's is 1",
        f"{title} has 2 of the 3 scales that it takes",
    )


@RULES
def test_a_collapsed_scale_is_in_no_trend_but_in_the_table(rule: Rule) -> None:
    judged = by_scale({1: 9, 0.3: 5, 0.1: 3, 0.01: 12}, collapsed=[0.01], rule=rule)
    assert both(judged)[0] == "holds"
    assert judged.tables[0].rows[0][3:7] == (12.0, 3.0, 5.0, 9.0)


def test_the_smallest_scale_is_the_smallest_that_did_not_collapse() -> None:
    """0.1 ends at 18 of 20, which is too much; 0.01 would be low enough."""
    judged = by_scale({1: 20, 0.3: 19, 0.1: 18, 0.01: 1}, collapsed=[0.01])
    assert both(judged)[0] == "fails" and judged.tables[0].rows[0][7] == 0.9


def test_without_scale_one_it_cannot_tell() -> None:
    judged = by_scale({1: 9, 0.3: 5, 0.1: 3, 0.03: 2}, collapsed=[1])
    assert both(judged) == ("no data", None)
    assert judged.remarks[1].endswith("has no run at scale 1 that did not collapse")
    assert both(by_scale({0.5: 9, 0.3: 5, 0.1: 3}))[0] == "no data"
    assert both(by_scale({0.5: 9, 0.3: 5, 0.1: 3}, rule=B8_FIRST))[0] == "holds"


@RULES
def test_a_block_with_a_head_that_was_not_measured_may_be_either(rule: Rule) -> None:
    ranks = {scale: courses(*[(0, end)] * 2).astype(float) for scale, end in ENDS.items()}
    ranks[0.3][1, 1, 0] = np.nan
    runs = {vit(scale): vit_run(of_scale) for scale, of_scale in ranks.items()}
    assert both(verdict(rule, runs)) == ("no data", 0.5)


ENDS = {1.0: 4, 0.3: 3, 0.1: 2}


@RULES
def test_a_run_that_was_stopped_is_said_to_be(rule: Rule) -> None:
    stopped = vit_run(courses((0, 1)), declaration=EPOCHS | STOP, stopped_at=143 * STEPS_PER_EPOCH)
    ds = vit_run(courses((0, 1)))
    remarks = verdict(rule, {vit(1.0): ds, vit(0.3): ds, vit(0.1): stopped}, seeds=1).remarks
    assert sum(remark.endswith(stop_of(stopped)) for remark in remarks) == 1


@RULES
def test_networks_of_one_or_two_experiments_stay_apart(rule: Rule) -> None:
    falls = {1.0: 7, 0.3: 8, 0.1: 9}
    places = {("a", "vit"): ENDS, ("b", "vit"): falls, ("b", "depth-3"): ENDS}
    runs = {
        RunKey(network, {"scale": scale}, experiment=experiment): vit_run(courses((0, end)))
        for (experiment, network), ends in places.items()
        for scale, end in ends.items()
    }
    networks = verdict(rule, runs).networks
    assert {(judged.experiment, judged.network): judged.word for judged in networks} == {
        place: "holds" if ends is ENDS else "fails" for place, ends in places.items()
    }
    assert len(networks) == 6


def test_networks_with_two_scales_are_not_needed() -> None:
    keys = [RunKey("vit", {"scale": scale}) for scale in (1.0, 0.3, 0.1)]
    two = [RunKey("narrow", {"scale": scale}) for scale in (1.0, 0.1)]
    assert B8.needs([*keys, *two, RunKey("toy")]) == keys
