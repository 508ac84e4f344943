from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay, Log
from rankscope.lab.execution import execute
from rankscope.lab.experiment import MissingRun, Results
from rankscope.lab.findings import docstring, verdict_of
from rankscope.lab.network_figures import figure_7
from rankscope.lab.reading import network
from rankscope.lab.shelf import Shelf, UndeclaredRun, read_shelf, results_of, with_whole_seeds
from rankscope.lab.stored_run import stored_runs
from rankscope.lab.verdict import Verdict, judge

WHOLE = xr.Dataset()
LACKS = "was not run"
SHELF: Shelf = {
    "a/x": {0: WHOLE, 1: WHOLE},
    "a/y": {0: WHOLE, 1: LACKS},
    "b/x": {0: WHOLE, 1: WHOLE},
    "c/x": {0: LACKS, 1: LACKS},
}


def seeds_of_all(results: Results) -> dict[str, list[int]]:
    return {name: [seed for seed, _ in runs.items()] for name, runs in results.items()}


def test_one_network_costs_the_others_nothing() -> None:
    attempt = with_whole_seeds(seeds_of_all, SHELF, group=network)
    assert attempt.found == {"a/x": [0], "a/y": [0], "b/x": [0, 1]}
    assert attempt.lost == ("a/y, seed 1: was not run", "c: was not run")
    assert attempt.incomplete == {"a", "c"} and attempt.fault is None


def test_runs_that_stand_and_fall_together() -> None:
    attempt = with_whole_seeds(seeds_of_all, {name: SHELF[name] for name in ("a/x", "a/y", "b/x")})
    assert attempt.found == {"a/x": [0], "a/y": [0], "b/x": [0]}
    assert with_whole_seeds(seeds_of_all, SHELF).found is None


def test_a_function_that_asks_for_less_loses_nothing() -> None:
    attempt = with_whole_seeds(lambda results: len(results["b/x"].values()), SHELF, group=network)
    assert (attempt.found, attempt.lost) == (2, ())


def test_a_name_that_is_not_there() -> None:
    results = results_of(SHELF)
    assert "d/x" not in results and results.get("d/x") is None
    with pytest.raises(UndeclaredRun, match="d/x was not run"):
        results["d/x"]
    attempt = with_whole_seeds(lambda results: results["d/x"], SHELF)
    assert (attempt.found, attempt.lost, attempt.fault) == (None, (), None)
    assert attempt.reason == "d/x was not run"
    assert issubclass(UndeclaredRun, MissingRun)


def test_a_figure_that_has_nothing_to_show_is_not_a_mistake() -> None:
    attempt = with_whole_seeds(figure_7, SHELF)
    assert attempt.found is None and attempt.fault is None
    assert attempt.lost == ()
    assert attempt.reason.startswith("this figure needs runs of mlp/true-labels")
    attempt = with_whole_seeds(lambda results: np.zeros(3).reshape(2, 2), SHELF)
    assert attempt.found is None and attempt.fault is not None


@pytest.mark.parametrize(("says_no", "holds"), [("b", "no"), ("a", "undecided")])
def test_only_a_network_with_all_its_runs_settles_a_claim(says_no: str, holds: str) -> None:
    def claim(results: Results) -> Verdict:
        """It holds."""
        seeds_of_all(results)
        outcome = {name: {s: (1.0, name != says_no) for s in range(3)} for name in ("a", "b")}
        return judge("Q", "it holds", outcome, bound="")

    verdict = verdict_of("Q", claim, with_whole_seeds(claim, SHELF, group=network))
    assert verdict.holds == holds
    assert verdict.evidence == ("without a/y, seed 1: was not run", "without c: was not run")


def test_what_is_small_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = replace(experiment("smoke"), runs={"rates/fast": Decay()})
    execute(stored_runs(toy, tmp_path), jobs=1, watcher=Log())
    ds = read_shelf(toy, tmp_path)["rates/fast"][0]
    assert ds["loss"].variable._in_memory
    monkeypatch.setattr("rankscope.lab.shelf.SMALL", 0)
    assert not read_shelf(toy, tmp_path)["rates/fast"][0]["loss"].variable._in_memory


def test_a_docstring_of_a_function_with_arguments() -> None:
    assert docstring(partial(partial(network), "a")) == docstring(network) != ""
    assert docstring(lambda: None) == ""
