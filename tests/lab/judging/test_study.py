import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_runs import Decay, Log
from lab.toy_study import FALLS, FAST, SLOW, experiment
from rankscope.lab.experiment import FigureRule, TooFewRuns, study_of
from rankscope.lab.judging.available_runs import AvailableRuns, load_runs
from rankscope.lab.judging.rule import Measured
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.judging.study import (
    judge,
    judge_study,
    read_json,
    verdicts_json,
    write_json,
)
from rankscope.lab.judging.tally import Tally
from rankscope.lab.running.processes import execute
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import stored_runs

SMALL = study_of(experiment("small"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> AvailableRuns:
    out = tmp_path_factory.mktemp("runs")
    execute(stored_runs(experiment("small"), out), jobs=1, watcher=Log())
    return load_runs(SMALL.experiments, out)


def test_a_verdict_has_a_word_for_every_network(runs: AvailableRuns, tmp_path: Path) -> None:
    report = judge_study(SMALL, runs, figures=tmp_path)
    falls, rises = report.verdicts
    assert [(n.network, n.word, n.experiment) for n in falls.networks] == [
        ("fast", "holds", "paper2000/slow-decay"),
        ("slow", "holds", "paper2000/slow-decay"),
    ]
    assert [(n.network, n.word) for n in rises.networks] == [("fast", "fails")]
    assert falls.tables[0].columns == ("network", "seed", "share [left]")
    (drawing,) = report.drawings
    assert {path.name for path in drawing.files} == {"figure-1.png", "figure-1.svg"}
    assert drawing.caption.startswith("The loss falls") and not report.faults


def test_nothing_is_drawn_without_a_folder(runs: AvailableRuns) -> None:
    assert judge_study(SMALL, runs).drawings == ()


def test_a_network_without_runs_has_no_data_and_the_reason(tmp_path: Path) -> None:
    failing = replace(SMALL.experiments[0], runs={FAST: Decay(fails=(0, 1, 2)), SLOW: Decay()})
    execute(stored_runs(failing, tmp_path), jobs=1, watcher=Log())
    verdict = judge(FALLS, load_runs([failing], tmp_path))
    assert [(n.network, n.word) for n in verdict.networks] == [
        ("fast", "no data"),
        ("slow", "holds"),
    ]
    (lack,) = verdict.missing
    assert (lack.network, lack.seeds) == ("fast", (0, 1, 2)) and "ArithmeticError" in lack.reason


def test_one_outcome_may_be_about_several_networks(runs: AvailableRuns) -> None:
    def measure(whole: Runs) -> Iterator[Measured]:
        for seed in whole.seeds:
            fast, slow = (whole.of(name).only[seed]["loss"][-1] for name in ("fast", "slow"))
            both = RunKey("both", experiment="paper2000/slow-decay")
            yield Measured(met=bool(fast < slow)).at(both, seed)

    rule = replace(FALLS, measure=measure, network=lambda key: "both")
    assert [(n.network, n.word) for n in judge(rule, runs).networks] == [("both", "holds")]
    nothing = replace(rule, measure=lambda whole: ())
    assert [(n.network, n.word) for n in judge(nothing, runs).networks] == [("both", "no data")]


CHANGED = replace(FALLS, changed=True)


@pytest.mark.parametrize(
    ("seen", "seeds", "unseen"),
    [
        ((0,), [0, 1, 2], (1, 2)),  # the only one that was seen is the third of three
        ((0, 1), [2], (2,)),
        ((0, 1, 2), [], ()),
        ((), [0, 1, 2], (0, 1, 2)),
    ],
)
def test_unseen_seeds_decide_a_changed_rule(runs: AvailableRuns, seen, seeds, unseen) -> None:
    for network in judge(CHANGED, runs, seen={"paper2000/slow-decay": seen}).networks:
        assert [outcome.seed for outcome in network.seeds] == seeds
        assert network.unseen == unseen


def test_all_seeds_decide_a_rule_that_did_not_change(runs: AvailableRuns) -> None:
    seen = {"paper2000/slow-decay": (0, 1, 2)}
    for verdict in (judge(FALLS, runs, seen=seen), judge(CHANGED, runs)):
        assert [network.words for network in verdict.networks] == ["holds (3 seeds)"] * 2
    assert [n.word for n in judge(CHANGED, runs, seen=seen).networks] == ["no data"] * 2


def test_a_study_says_which_seeds_were_seen(runs: AvailableRuns) -> None:
    study = replace(SMALL, claims=(CHANGED,), seen={"paper2000/slow-decay": (0, 1)})
    (verdict,) = judge_study(study, runs).verdicts
    assert verdict.networks[0].words == "holds so far (1 seed, all unseen)"


def test_one_mistake_does_not_cost_the_other_claims(runs: AvailableRuns, tmp_path: Path) -> None:
    def broken(runs: Runs) -> Iterator[Measured]:
        raise ZeroDivisionError("no rate")

    def too_few(runs: Runs) -> None:
        raise TooFewRuns("this figure needs two networks")

    study = replace(
        SMALL,
        claims=(replace(FALLS, claim="P0", measure=broken), *SMALL.claims),
        figures=(
            FigureRule("broken", broken),
            FigureRule("few", too_few),
            FigureRule("none", too_few, needs=runs_of("absent")),
            *SMALL.figures,
        ),
    )
    report = judge_study(study, runs, figures=tmp_path)
    assert report.verdicts[0].fault == "could not be judged: ZeroDivisionError: no rate"
    assert [verdict.claim for verdict in report.verdicts] == ["P0", "P1", "P2"]
    assert len(report.faults) == 2 and all("ZeroDivisionError" in f for f in report.faults)
    assert tuple(remark for drawing in report.drawings for remark in drawing.remarks) == (
        "broken could not be drawn: ZeroDivisionError: no rate",
        "few could not be drawn: this figure needs two networks",
        "none could not be drawn: no seed has all the runs it needs",
    )


def test_variants_and_parts_are_told_apart_and_exceptions_listed(runs: AvailableRuns) -> None:
    def measure(runs: Runs) -> Iterator[Measured]:
        for key in runs:
            for seed in runs[key]:
                tally = Tally(("m1", "m2"), ("m2",) if seed else ())
                measured = Measured(1.0, True, tallies={"falls": tally}, remarks=("once",))
                yield replace(measured.at(key, seed, part="K-Q"), variant=key.variant)

    rule = replace(FALLS, measure=measure, reason="a reason", headline="P0", ours=True)
    verdict = judge(rule, runs)
    assert (verdict.headline, verdict.ours) == ("P0", True)
    assert [n.label for n in verdict.networks] == ["fast, rate 2, K-Q", "slow, rate 1, K-Q"]
    assert (verdict.reason, verdict.remarks) == ("a reason", ("once",))
    assert verdict.tables[-1].rows[0] == (
        "slow-decay: fast, rate 2, K-Q",
        "falls",
        "seed 1 2: m2",
        "-",
    )


def test_verdicts_are_written_whole_and_read_back(runs: AvailableRuns, tmp_path: Path) -> None:
    content = verdicts_json(judge_study(SMALL, runs))
    write_json(content, tmp_path / "a" / "verdicts.json")
    assert read_json(tmp_path / "a" / "verdicts.json") == json.loads(json.dumps(content))
    (tmp_path / "half.json").write_text('{"study":')
    with pytest.raises(ValueError, match="damaged"):
        read_json(tmp_path / "half.json")
