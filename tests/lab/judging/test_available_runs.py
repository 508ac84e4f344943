from dataclasses import replace
from pathlib import Path

import xarray as xr

from lab.toy_runs import Decay, Log
from lab.toy_study import FAST, SLOW, experiment
from rankscope.lab.judging.available_runs import AvailableRuns, load_runs
from rankscope.lab.judging.selected_runs import all_runs, runs_of
from rankscope.lab.judging.verdict import Missing
from rankscope.lab.running.processes import execute
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import stored_runs

WHOLE = xr.Dataset()
LACKS = "was not run"


def key(network: str, decay: float) -> RunKey:
    return RunKey(network, {"decay": decay}, experiment="p/e")


def test_a_seed_that_lacks_a_run_is_left_out_of_its_network_alone() -> None:
    runs = AvailableRuns(
        {
            key("a", 0): {0: WHOLE, 1: WHOLE},
            key("a", 1): {0: WHOLE, 1: LACKS},
            key("b", 0): {0: WHOLE, 1: WHOLE},
            key("c", 0): {0: LACKS, 1: LACKS},
        }
    )
    whole, missing = runs.select(all_runs)
    assert {k: list(seeds) for k, seeds in whole.entries.items()} == {
        key("a", 0): [0],
        key("a", 1): [0],
        key("b", 0): [0, 1],
    }
    assert missing == (
        Missing("p/e", "a", ("a, decay 1",), (1,), LACKS),
        Missing("p/e", "c", ("c, decay 0",), (0, 1), LACKS),
    )


def test_runs_that_are_not_needed_cost_nothing() -> None:
    runs = AvailableRuns({key("a", 0): {0: WHOLE}, key("b", 0): {0: LACKS}})
    whole, missing = runs.select(runs_of("a"))
    assert list(whole) == [key("a", 0)] and not missing


def test_the_same_lack_of_several_seeds_is_said_once() -> None:
    runs = AvailableRuns(
        {
            key("a", 0): {0: WHOLE, 1: WHOLE, 2: WHOLE},
            key("a", 1): {0: LACKS, 1: LACKS, 2: "failed (Error)"},
        }
    )
    _, missing = runs.select(all_runs)
    assert [(lack.seeds, lack.reason) for lack in missing] == [
        ((0, 1), LACKS),
        ((2,), "failed (Error)"),
    ]


def test_stored_runs_are_read_and_others_have_a_reason(tmp_path: Path) -> None:
    declared = experiment("smoke")
    failing = replace(declared, runs={FAST: Decay(rate=2.0, fails=(0,)), SLOW: Decay()})
    execute(stored_runs(failing, tmp_path), jobs=1, watcher=Log())
    runs = load_runs([failing], tmp_path)
    fast, slow = (runs.entries[replace(k, experiment=declared.name)][0] for k in (FAST, SLOW))
    assert isinstance(fast, str) and fast.startswith("failed (ArithmeticError")
    assert isinstance(slow, xr.Dataset) and slow["loss"].size == 4
    assert not runs.empty


def test_every_seed_on_disk_takes_part_and_asked_ones_are_missed(tmp_path: Path) -> None:
    declared = experiment("small")
    execute(stored_runs(declared, tmp_path, seeds=(0, 7)), jobs=1, watcher=Log())
    (seeds, _) = load_runs([declared], tmp_path).entries.values()
    assert list(seeds) == [0, 7]
    (seeds, _) = load_runs([declared], tmp_path, seeds=(1,)).entries.values()
    assert list(seeds) == [0, 1, 7] and seeds[1] == LACKS


def test_nothing_on_disk_lists_the_declared_seeds(tmp_path: Path) -> None:
    runs = load_runs([experiment("small")], tmp_path)
    assert runs.empty
    assert [list(seeds) for seeds in runs.entries.values()] == [[0, 1, 2]] * 2
