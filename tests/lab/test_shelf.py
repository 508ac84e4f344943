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
    attempt = with_whole_seeds(seeds_of_all, SHELF)
    assert attempt.found == {"a/x": [0], "a/y": [0], "b/x": [0, 1]}
    assert attempt.lost == ("a/y of seed 1: was not run", "c: was not run")
    assert attempt.complete == {"b"} and attempt.fault is None


def test_everything_that_a_network_lacks_is_named() -> None:
    """Not the first run alone that a function asks for in vain."""
    shelf: Shelf = {
        "a/x": {0: WHOLE, 1: WHOLE, 2: WHOLE},
        "a/y": {0: LACKS, 1: LACKS, 2: WHOLE},
        "a/z": {0: LACKS, 1: LACKS, 2: "failed (Error)"},
        "b": {0: LACKS, 1: WHOLE, 2: WHOLE},
    }
    attempt = with_whole_seeds(seeds_of_all, shelf)
    assert attempt.found == {"b": [1, 2]}
    assert attempt.lost == (
        "a/y, z of seeds 0, 1: was not run",
        "a/z of seed 2: failed (Error)",
        "b of seed 0: was not run",
    )


def test_of_many_runs_that_are_not_there_the_number_is_said() -> None:
    shelf: Shelf = {"a/x": {0: WHOLE}, **{f"a/{i}": {0: LACKS} for i in range(5)}}
    assert with_whole_seeds(seeds_of_all, shelf).lost == ("5 of 6 a runs of seed 0: was not run",)


def test_a_function_that_asks_for_less_loses_nothing() -> None:
    attempt = with_whole_seeds(lambda results: len(results["b/x"].values()), SHELF)
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


@pytest.mark.parametrize(
    ("says_no", "holds"),
    [
        ("b", "no"),
        ("a", "undecided"),
        ("b/x", "no"),
        ("a/x, K-Q", "undecided"),
        ("b, K-Q", "no"),
        ("x", "undecided"),
    ],
)
def test_only_a_network_with_all_its_runs_settles_a_claim(says_no: str, holds: str) -> None:
    def claim(results: Results) -> Verdict:
        """It holds."""
        seeds_of_all(results)
        judged = ("a", "b", says_no)
        outcome = {name: {s: (1.0, name != says_no) for s in range(3)} for name in judged}
        return judge("Q", "it holds", outcome, bound="")

    verdict = verdict_of("Q", claim, with_whole_seeds(claim, SHELF))
    assert verdict.holds == holds
    assert verdict.evidence == ("without a/y of seed 1: was not run", "without c: was not run")


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
