"""What tests of findings share: evidence behind kept verdicts, tables, and runs made by hand."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest
import xarray as xr

from findings import assumptions, factors, labels, runs, vit
from rankscope.lab.judging.verdict import Cell, Table

Rows = list[list[Cell]]


@cache
def _verdict(folder: str, claim: str) -> dict:
    stored = json.loads((runs.RESULTS / folder / "verdicts.json").read_text())
    return next(each for each in stored["verdicts"] if each["claim"] == claim)


def _evidence(folder: str, claim: str, *, network: str | None = None) -> Rows:
    rows = _verdict(folder, claim)["tables"][0]["rows"]
    return [row for row in rows if network is None or row[0] == network]


@cache
def _table(finding: Callable[[], Table]) -> Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factors, "MOMENTS", (2, 40, 80))  # steps; hundreds take seconds
        return finding()


@pytest.fixture
def verdict() -> Callable[[str, str], dict]:
    """What `rankscope results keep` wrote on a claim."""
    return _verdict


@pytest.fixture
def evidence() -> Callable[..., Rows]:
    """The rows of the first table behind a verdict."""
    return _evidence


@pytest.fixture(scope="session")
def table() -> Callable[[Callable[[], Table]], Table]:
    """A finding on the kept results, computed once."""
    return _table


@pytest.fixture
def share() -> Callable[[Cell], float]:
    """0.5 of "3 of 6"."""

    def of(count: Cell) -> float:
        met, every = str(count).split(" of ")
        return int(met) / int(every)

    return of


@pytest.fixture
def listed() -> Callable[[Cell], list[float]]:
    """[0.1, 2] of "0: 0.1, 0.1: 2"."""
    return lambda numbers: [float(each.split(": ")[-1]) for each in str(numbers).split(", ")]


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """keep(experiment, runs): run name -> Dataset, or seed -> Dataset, in place of kept results."""
    made: dict[str, dict[str, Mapping[int, xr.Dataset]]] = {}
    for module in (runs, labels, assumptions, vit):
        monkeypatch.setattr(module, "kept", made.__getitem__)

    def put(experiment: str, of: Mapping[str, xr.Dataset | Mapping[int, xr.Dataset]]) -> None:
        made[experiment] = {
            name: {0: each} if isinstance(each, xr.Dataset) else each for name, each in of.items()
        }

    _forget()
    yield put
    _forget()


def _forget() -> None:
    runs.sweeps.cache_clear()
    vit.head_ranks.cache_clear()


@pytest.fixture
def keep_sweep(keep: Callable[..., None]) -> Callable[..., None]:
    """keep_sweep(network, runs): decay -> Dataset, or seed -> Dataset."""

    def put(network: str, of: Mapping[float, xr.Dataset | Mapping[int, xr.Dataset]]) -> None:
        named = {f"{network}/decay-{decay:g}": each for decay, each in of.items()}
        keep(f"yunis2024/{network}", named)

    return put
