import pytest

from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.running.run_key import RunKey

A0, A1 = RunKey("a", {"decay": 0.0}), RunKey("a", {"decay": 1.0})
B0, ALGORITHM = RunKey("b", {"decay": 0.0}), RunKey("b", kind="algorithm")
RUNS = Runs({A1: {0: "a1", 2: "a1"}, A0: {0: "a0"}, B0: {1: "b0"}, ALGORITHM: {1: "alg"}})


def test_runs_are_selected_by_what_they_are() -> None:
    assert RUNS.of("a").by("decay") == {0.0: {0: "a0"}, 1.0: {0: "a1", 2: "a1"}}
    assert RUNS.kind("algorithm").only == {1: "alg"}
    assert RUNS.networks == ["a", "b"] and RUNS.seeds == [0, 1, 2]
    assert RUNS[B0] == {1: "b0"} and len(RUNS) == 4 and not Runs()


def test_two_networks_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="select one network"):
        RUNS.by("decay")


def test_needs_choose_from_the_declared_runs() -> None:
    keys = [A0, A1, B0, ALGORITHM]
    assert runs_of("b")(keys) == [B0, ALGORITHM]
    assert runs_of("b", parameter="decay")(keys) == [B0]
    assert runs_of(kind="algorithm")(keys) == [ALGORITHM]
    assert runs_of(experiment="other")(keys) == []
