import pytest
import xarray as xr

from lab.results.toy_results import NAME
from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_papers.paper2000 import paper
from rankscope.lab.results.judging import (
    Place,
    by_paper,
    differences,
    inputs_of,
    judge_place,
    places,
    shelf_of,
)
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.lab.verdict import judge

TOY = experiment("paper")
PLACE = Place(NAME, (TOY,), TOY.claims, TOY.figures)


def run(end: float = 0.1) -> xr.Dataset:
    return xr.Dataset({"loss": ("time", [1.0, end])})


def done(sha256: str) -> Done:
    return Done("", "", "", "", 0.0, "", 1, sha256, 0)


@pytest.fixture
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankscope.lab.catalogue.PACKAGE", "lab.toy_experiments")


@pytest.mark.usefixtures("_toys")
def test_places_of_which_something_is_kept() -> None:
    some = Ledger({(NAME, "rates/fast", 0): done("a")})
    found = places([paper("paper")], some)
    assert [place.name for place in found] == ["paper2000", NAME]
    assert places([paper("paper")], Ledger()) == []
    elsewhere = Place("paper2001/other", (), {}, {})
    assert [len(group) for group in by_paper([*found, elsewhere])] == [2, 1]


def test_a_seed_that_lacks_a_run_is_named() -> None:
    kept = {(NAME, "rates/fast", 0): run(), (NAME, "rates/slow", 0): run()}
    assert {name: [*of] for name, of in shelf_of(PLACE, kept).items()} == {
        "rates/fast": [0],
        "rates/slow": [0],
    }
    kept[NAME, "rates/fast", 2] = run()
    assert shelf_of(PLACE, kept)["rates/slow"][2] == "was not run"
    falls, _ = judge_place(PLACE, kept).verdicts
    assert falls.evidence[0] == "without rates/slow, seed 2: was not run"
    assert {name: [*of] for name, of in shelf_of(PLACE, {}).items()}["rates/slow"] == [0, 1, 2]


def test_figures_depend_on_every_file_of_their_place() -> None:
    one = {(NAME, "rates/fast", 0): done("a")}
    first = inputs_of(PLACE, Ledger(one))
    assert inputs_of(PLACE, Ledger({**one, ("other/run", "x", 0): done("a")})) == first
    assert inputs_of(PLACE, Ledger({(NAME, "rates/fast", 0): done("b")})) != first
    assert inputs_of(PLACE, Ledger({**one, (NAME, "rates/slow", 0): done("b")})) != first


def test_where_two_verdicts_differ() -> None:
    met = judge("P1", "", {"a": dict.fromkeys(range(3), (0.1, True))}, bound="")
    mixed = {0: (0.1, True), 1: (0.1, False), 2: (0.1, None)}
    other = judge("P1", "", {"a": mixed}, bound="")
    assert differences([met], [met]) == []
    assert differences([met], [other]) == [
        "P1 yes by whole runs, undecided by kept ones",
        "P1, a, seed 1: met by whole runs, not met by kept ones",
        "P1, a, seed 2: met by whole runs, cannot tell by kept ones",
    ]
