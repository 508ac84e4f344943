from dataclasses import replace
from pathlib import Path

import pytest

from lab.toy_runs import Decay
from rankscope.lab.experiment import Experiment, MissingRun, Run

TOY = Experiment("boix2023/toy", "smoke", runs={"teacher-1/alpha-1e-8": Decay()}, seeds=(0, 1))


def test_its_folder() -> None:
    assert TOY.folder(Path("runs")) == Path("runs/boix2023/toy/smoke")


def test_a_run_is_what_can_be_executed() -> None:
    assert isinstance(Decay(), Run) and not isinstance(TOY, Run)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a b", "a/seed-0", "figures/a"])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a folder; join words"):
        replace(TOY, runs={name: Decay()})


@pytest.mark.parametrize("seeds", [(), (0, 0), (-1,)])
def test_seeds(seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="seeds must be different whole numbers from 0 on"):
        replace(TOY, seeds=seeds)


def test_a_missing_run_is_not_mistaken_for_a_key_that_is_absent() -> None:
    missing = MissingRun("a/b", 3, "failed")
    assert str(missing) == "a/b, seed 3: failed" and missing.seed == 3
    assert not isinstance(missing, KeyError)
