from pathlib import Path

import pytest

from lab.toy_runs import Log
from rankscope.lab import catalogue
from rankscope.lab.catalogue import entries, load, names
from rankscope.lab.execution import execute
from rankscope.lab.experiment import SCALES
from rankscope.lab.stored_run import stored_runs


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "PACKAGE", "lab.toy_experiments")


def test_every_experiment_of_the_package_loads_at_every_scale() -> None:
    for name in names():
        for scale in SCALES:
            experiment = load(name, scale)
            assert experiment.claims or experiment.figures


@pytest.mark.usefixtures("toys")
def test_names_come_from_files() -> None:
    assert names() == ("paper2000/slow-decay",)
    assert load("paper2000/slow-decay", "smoke").seeds == (0,)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("paper2000/slow_decay", "; did you mean paper2000/slow-decay?"),
        ("slow-decay", "; did you mean paper2000/slow-decay?"),
        ("vgg", ""),
    ],
)
def test_an_unknown_name(name: str, hint: str) -> None:
    with pytest.raises(ValueError) as refused:
        load(name, "small")
    expected = f"there is no experiment {name!r}{hint} (there are: paper2000/slow-decay)"
    assert str(refused.value) == expected


@pytest.mark.usefixtures("toys")
def test_entries_count_what_is_there(tmp_path: Path) -> None:
    small = stored_runs(load("paper2000/slow-decay", "small"), tmp_path)
    execute(small[:2], jobs=1, watcher=Log())
    paper, there, smoke = entries(tmp_path, results=tmp_path / "results")
    assert there == (
        "paper2000/slow-decay", "A loss decays at two rates.", "small", 90.0, "2 cores", 3, 6, 2, 0
    )  # fmt: skip
    assert (paper.scale, paper.expected_seconds, paper.whole) == ("paper", 7200, 0)
    assert (smoke.scale, smoke.expected_seconds, smoke.total) == ("smoke", None, 2)
