"""Which runs a claim on the base decay looks at, by a claim on the number of matrices."""

import xarray as xr

from lab.claims.training_runs import flat, seeds, training_run
from rankscope.lab.claims.base_runs import Rule, Seen, judge_base_runs
from rankscope.lab.claims.tally import Tally
from rankscope.lab.experiment import Results
from rankscope.lab.verdict import Verdict

RULE = Rule("Y0", "has two matrices", ">= 2", "matrices", ("first",), "matrices", ("vgg", "lm"))


def judged(results: Results) -> Verdict:
    def see(ds: xr.Dataset) -> Seen | None:
        count = ds.sizes["matrix"]
        return Seen((count, count >= 2), (ds["matrix"].to_numpy()[0],)) if count < 3 else None

    return judge_base_runs(RULE, results, see)


def run(count: int, **options):
    return training_run({f"w{n}": flat(4, [4, 4]) for n in range(count)}, **options)


def test_a_network_that_disagrees_settles_it() -> None:
    verdict = judged({"vgg/decay-0.0001": seeds(run(2)), "lm/decay-0.1": seeds(run(1))})
    assert {each.network: each.holds for each in verdict.networks} == {"vgg": "yes", "lm": "no"}
    assert verdict.holds == "no"
    assert verdict.tables[0].rows[0] == ("vgg", 0, "w0")


def test_every_exception_is_listed_after_the_rows() -> None:
    def see(ds: xr.Dataset) -> Seen:
        names = tuple(ds["matrix"].to_numpy())
        return Seen((0, False), ("row",), (("is good", Tally(names, names)),))

    rows, every = judge_base_runs(RULE, {"lm/decay-0.1": seeds(run(8), 2)}, see).tables
    assert rows.rows == (("lm", 0, "row"), ("lm", 1, "row"))
    listed = ", ".join(f"w{n}" for n in range(8))
    assert every.rows == (("lm", "is good", f"seed 0 1: {listed}", "-"),)


def test_a_collapsed_seed_cannot_tell_and_is_named() -> None:
    results = {"lm/decay-0.1": {**seeds(run(2)), 1: run(2, loss=(1.0, 0.95))}}
    verdict = judged(results)
    assert verdict.holds == "undecided"
    assert [seed.met for seed in verdict.networks[0].seeds] == [True, None, True]
    assert verdict.evidence == (
        "lm, seed 1 collapsed: training loss 0.95, a constant predictor's is 1",
    )


def test_only_the_base_decay_is_looked_at() -> None:
    results = {"vgg/decay-0.0001": seeds(run(2)), "vgg/decay-0.1": seeds(run(1))}
    assert judged(results).holds == "yes"


def test_the_nearest_decay_stands_in_and_is_named() -> None:
    verdict = judged({"lm/decay-0": seeds(run(2)), "lm/decay-1": seeds(run(1))})
    assert verdict.holds == "yes"
    assert verdict.evidence == ("lm at decay 0, the nearest there is to 0.1",)


def test_other_networks_and_runs_it_does_not_speak_of_say_nothing() -> None:
    for results in (
        {"unet/decay-0": seeds(run(2))},
        {"lm/other": seeds(run(2))},
        {"lm/decay-0.1": seeds(run(3))},
    ):
        verdict = judged(results)
        assert (verdict.holds, verdict.networks) == ("undecided", ())
        assert verdict.evidence[0].startswith("speaks of vgg, lm, of which no seed has all runs")
