"""What claims on runs by initial scale share, on runs of which each says what it is told to."""

import pytest
import xarray as xr

from lab.vit_runs import courses, vit_run
from rankscope.lab.claims.scale_runs import Rule, Seen, judge_each, judge_seen, share_of_all
from rankscope.lab.claims.tally import Tally
from rankscope.lab.heads import Kind

RULE = Rule("P1", "it is so", ">= 1", "what", "part", ("a", "b"), "title", evidence=("why",))


def tally(met: int, unmet: int, unknown: int) -> Tally:
    names = [f"block {i}" for i in range(met + unmet + unknown)]
    counted = tuple(names[: met + unmet])
    return Tally(counted, counted[met:], tuple(names[met + unmet :]))


@pytest.mark.parametrize(
    ("met", "unmet", "unknown", "expected"),
    [
        (5, 1, 0, True),
        (4, 2, 0, False),
        (5, 0, 1, True),  # whatever the sixth is
        (4, 1, 1, None),
        (1, 0, 5, None),
        (3, 2, 1, False),  # whatever the sixth is
    ],
)
def test_shares_are_of_all(met: int, unmet: int, unknown: int, expected: bool | None) -> None:
    assert share_of_all(tally(met, unmet, unknown), 5 / 6) == (met / 6, expected)


def test_without_any_that_is_measured_there_is_no_share() -> None:
    assert share_of_all(tally(0, 0, 6), 5 / 6) == (None, None)


def yes(ds: xr.Dataset, kind: Kind) -> Seen:
    """A row, something that is counted, and a remark."""
    return Seen((1.0, True), ((1, kind, 0.5),), tally(1, 1, 0), ("went well",))


def runs(*collapsed: bool) -> dict[int, xr.Dataset]:
    """A seed for each; a constant predictor's loss is 1."""
    return {
        seed: vit_run(courses((0, 1)), loss=[1.0, 1.0 if ill else 0.1])
        for seed, ill in enumerate(collapsed)
    }


def test_runs_and_products_are_networks_of_their_own() -> None:
    judged = judge_each(RULE, {"vit/scale-1": runs(*[False] * 3), "vgg/decay-0": {}}, yes)
    assert (judged.claim, judged.sentence, judged.bound) == ("P1", "it is so", ">= 1")
    assert [network.network for network in judged.networks] == [
        "vit/scale-1, K-Q",
        "vit/scale-1, V-O",
    ]
    assert judged.holds == "yes"
    assert judged.evidence == ("why", *(f"vit/scale-1, seed {i} went well" for i in range(3)))
    values, exceptions = judged.tables
    assert values.columns == ("network", "seed", "block", "a", "b")
    assert values.rows[0] == ("vit/scale-1, K-Q", 0, 1, "kq", 0.5)
    assert exceptions.rows[1] == ("vit/scale-1, V-O", "part", "seed 0 1 2: block 1", "-")


def test_one_seed_that_collapsed_cannot_tell() -> None:
    judged = judge_each(RULE, {"vit/scale-1": runs(False, True, False)}, yes)
    assert judged.holds == "undecided"
    assert [seed.met for seed in judged.networks[0].seeds] == [True, None, True]
    assert judged.tables[0].rows[1] == ("vit/scale-1, K-Q (collapsed)", 1, 1, "kq", 0.5)
    assert judged.tables[1].rows[0][2] == "seed 0 2: block 1"
    (said,) = (line for line in judged.evidence if "seed 1" in line)
    assert said.startswith("vit/scale-1, seed 1 is left out: training loss 1")


def test_networks_of_which_every_seed_collapsed_decide_nothing() -> None:
    ill = {"vit/scale-0.01": runs(*[True] * 3)}
    judged = judge_each(RULE, {"vit/scale-1": runs(*[False] * 3)} | ill, yes)
    assert judged.holds == "yes"
    assert len(judged.networks) == 2 and len(judged.tables[0].rows) == 12
    alone = judge_each(RULE, ill, yes)
    assert alone.holds == "undecided"
    assert all("is left out" in line for line in alone.evidence[1:])


def test_a_run_without_rows_has_an_empty_one() -> None:
    judged = judge_seen(RULE, {"vit": {0: Seen((None, None), remarks=("vit, seed 0 is short",))}})
    assert judged.tables[0].rows == (("vit", 0, "-", None, None),)
    assert judged.evidence[:2] == ("why", "vit, seed 0 is short")


def test_without_runs_it_is_undecided() -> None:
    judged = judge_each(RULE, {"vgg/decay-0": runs(False)}, yes)
    assert judged.holds == "undecided" and "there is none" in judged.evidence[0]
