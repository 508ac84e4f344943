import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay, Log
from rankscope.lab.execution import execute
from rankscope.lab.experiment import Experiment, MissingRun, Results
from rankscope.lab.findings import find
from rankscope.lab.shelf import read_shelf, results_of
from rankscope.lab.stored_run import stored_runs
from rankscope.lab.verdict import Verdict

TOY = experiment("small")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three seeds of both runs, whole."""
    return run(TOY, tmp_path_factory.mktemp("out"))


def run(toy: Experiment, out: Path) -> Path:
    execute(stored_runs(toy, out), jobs=1, watcher=Log())
    return out


def test_verdicts_and_figures_beside_the_runs(out: Path) -> None:
    findings = find(TOY, out)
    assert [(v.claim, v.holds) for v in findings.verdicts] == [("P1", "yes"), ("P2", "no")]
    # exp(-rate (steps - 1)) is the part of the loss that is left after three steps
    assert findings.verdicts[0].interval == pytest.approx((2.718281828**-6, 2.718281828**-3))
    assert findings.remarks == findings.faults == ()
    folder = out / "paper2000" / "slow-decay" / "small"
    assert findings.figures == (folder / "figures/figure-1.png", folder / "figures/figure-1.svg")
    assert all(path.stat().st_size > 0 for path in findings.figures)
    stored = json.loads((folder / "verdicts.json").read_text())
    assert (stored["of"], stored["scale"]) == ("paper2000/slow-decay", "small")
    assert tuple(map(Verdict.from_json, stored["verdicts"])) == findings.verdicts


def test_nothing_there_is_undecided(tmp_path: Path) -> None:
    findings = find(TOY, tmp_path)
    assert [v.holds for v in findings.verdicts] == ["undecided", "undecided"]
    assert findings.verdicts[0].evidence == (
        "could not be judged: no seed has all the runs it needs",
    )
    assert findings.verdicts[0].sentence.startswith("The loss falls to less than a fifth")
    assert findings.figures == () and findings.faults == ()
    assert findings.remarks == ("figure-1 could not be drawn: no seed has all the runs it needs",)


def test_a_missing_run_leaves_its_claim_undecided_and_others_decided(tmp_path: Path) -> None:
    """The slow run of seed 2 fails; P2 asks for the fast ones only."""
    toy = replace(TOY, runs={**TOY.runs, "rates/slow": Decay(fails=(2,))})
    first, second = find(toy, run(toy, tmp_path)).verdicts
    assert (first.holds, second.holds) == ("undecided", "no")
    reason = "rates/slow of seed 2: failed (ArithmeticError: the loss is not a number)"
    few = "undecided with fewer than the 3 seeds that it takes"
    assert first.evidence == (f"without {reason}", "measured at the last [row]", few)
    assert [len(network.seeds) for network in first.networks] == [2, 2]
    findings = find(toy, tmp_path)
    assert (
        findings.remarks == (f"figure-1 is drawn without {reason}",) and len(findings.figures) == 2
    )


def test_a_missing_seed_does_not_turn_four_into_three(tmp_path: Path) -> None:
    """Three seeds that agree would do, but the fourth was declared too."""
    runs = {"rates/fast": Decay(fails=(3,)), "rates/slow": Decay()}
    toy = replace(TOY, seeds=(0, 1, 2, 3), runs=runs)
    for verdict in find(toy, run(toy, tmp_path)).verdicts:
        assert verdict.holds == "undecided" and len(verdict.networks[0].seeds) == 3


def test_a_figure_without_any_seed_is_named(tmp_path: Path) -> None:
    toy = replace(TOY, seeds=(0,), runs={**TOY.runs, "rates/fast": Decay(fails=(0,))})
    findings = find(toy, run(toy, tmp_path))
    assert findings.figures == () and findings.faults == ()
    why, lost = findings.remarks
    assert why.startswith("figure-1 could not be drawn: no seed has") and "rates/fast" in lost


def test_seeds_that_miss_different_runs(tmp_path: Path) -> None:
    """No seed has both runs; each claim and figure goes through them all."""
    runs = {"rates/fast": Decay(fails=(0, 2)), "rates/slow": Decay(fails=(1,))}
    toy = replace(TOY, runs=runs)
    findings = find(toy, run(toy, tmp_path))
    first, second = findings.verdicts
    assert first.holds == second.holds == "undecided" and findings.faults == ()
    fast, slow, reason = first.evidence
    assert fast.startswith("without rates/fast of seeds 0, 2: failed")
    assert slow.startswith("without rates/slow of seed 1: failed")
    assert reason.startswith("could not be judged")
    assert [outcome.seed for outcome in second.networks[0].seeds] == [1]


def test_seeds_nobody_ran_are_not_missed(out: Path) -> None:
    more = replace(TOY, seeds=(0, 1, 2, 3))
    assert list(read_shelf(more, out)["rates/fast"]) == [0, 1, 2]
    asked = results_of(read_shelf(more, out, seeds=(3,)))["rates/fast"]
    assert list(asked) == [0, 1, 2, 3]
    for look in (lambda: asked[3], lambda: asked.get(3), lambda: list(asked.values())):
        with pytest.raises(MissingRun, match="rates/fast, seed 3: was not run"):
            look()


def test_a_mistake_in_a_claim_or_figure_costs_no_other(out: Path) -> None:
    def mistaken(results: Results) -> Verdict:
        """All is well."""
        raise KeyError("loss of the loss")

    def blank(results: Results) -> Figure:
        raise ZeroDivisionError("no area")

    toy = replace(
        TOY, claims={"P0": mistaken, **TOY.claims}, figures={"figure-0": blank, **TOY.figures}
    )
    findings = find(toy, out)
    assert [v.holds for v in findings.verdicts] == ["undecided", "yes", "no"]
    assert findings.verdicts[0].evidence == ("could not be judged: KeyError: 'loss of the loss'",)
    assert findings.verdicts[0].sentence == "All is well."
    assert len(findings.figures) == 2
    assert ["loss of the loss" in findings.faults[0], "no area" in findings.faults[1]] == [True] * 2


def test_a_claim_under_the_key_of_another_is_our_mistake(out: Path) -> None:
    claim: Callable[[Results], Verdict] = TOY.claims["P1"]
    with pytest.raises(AssertionError, match="calls P1 by the key P7"):
        find(replace(TOY, claims={"P7": claim}), out)
