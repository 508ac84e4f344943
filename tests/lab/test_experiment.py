from dataclasses import replace

import pytest

from lab.toy_runs import Decay
from lab.toy_study import FAST, SLOW, experiment
from rankscope.lab.experiment import Experiment, FigureRule, Study, select_runs, study_of
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.running.run_key import RunKey


def declared(name: str = "paper/x", key: RunKey = FAST, seeds: tuple[int, ...] = (0,)):
    return Experiment(name, "smoke", runs={key: Decay()}, seeds=seeds)


def test_keys_carry_their_experiment() -> None:
    (key,) = declared().runs
    assert (key.experiment, key.network, key.name) == ("paper/x", "fast", "fast/rate-2")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "paper/../x"},
        {"name": "paper/report-small"},
        {"key": RunKey("a b")},
        {"key": RunKey("seed-0")},
        {"key": RunKey("figures")},
        {"seeds": ()},
        {"seeds": (0, 0)},
        {"seeds": (-1,)},
    ],
)
def test_what_cannot_be_a_folder_or_a_seed_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match="experiment"):
        declared(**wrong)


def test_a_study_has_one_scale_and_different_names() -> None:
    with pytest.raises(ValueError, match="cannot have the experiment"):
        Study("paper", "A paper", "small", (declared(),))
    with pytest.raises(ValueError, match="two experiments"):
        Study("paper", "A paper", "smoke", (declared(), declared()))
    study = study_of(experiment("small"))
    with pytest.raises(ValueError, match="two claims"):
        replace(study, claims=study.claims * 2)


def test_a_part_of_a_study_keeps_what_it_can_judge_and_draw() -> None:
    study = replace(
        study_of(experiment("small")),
        figures=(FigureRule("a", print), FigureRule("b", print, needs=runs_of("fast"))),
    )
    slow = select_runs(study.experiments[0], [SLOW], seeds=(0,))
    part = study.restrict([slow])
    assert [rule.claim for rule in part.claims] == ["P1"]
    assert [figure.name for figure in part.figures] == ["a"]
    assert [key.network for key in part.keys] == ["slow"]
    assert slow.seeds == (0,) and slow.expected_seconds == pytest.approx(90 / 6)
