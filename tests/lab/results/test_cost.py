import pytest
from rich.console import Console

from lab.results.toy_results import NAME, use_toys
from rankscope.lab.results.cost import NEXT, cost_table, costs, what_is_next
from rankscope.lab.results.ledger import Done, Ledger

DONE = Done("", "", "", "2026-01-01T00:00:00+00:00", 600.0, "", "", 0)
FIRST = f"rankscope run {NAME} --scale paper --seed 0"
MORE = f"rankscope run {NAME} --scale paper --seed 1 --seed 2"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)


def test_what_is_due_and_what_it_costs() -> None:
    found = costs(Ledger({(NAME, "rates/fast", 1): DONE}))
    assert [(each.runs, each.done) for each in found] == [(2, 0), (4, 1)]
    assert [each.expected for each in found] == pytest.approx([2400, 4800])  # of 2 h, 3 seeds
    console = Console(width=100)
    with console.capture() as printed:
        console.print(cost_table(found))
    lines = [" ".join(line.split()) for line in printed.get().splitlines()]
    assert f"{NAME}, seed 0 0 of 2 40 min -" in lines
    assert f"{NAME}, seed 1, 2 (optional) 1 of 4 80 min 10 min" in lines
    assert "due, 2 cores 0 of 2 40 min 0 s" in lines


def test_what_to_type_next() -> None:
    optional = ["As machine time allows:", MORE]
    assert [*what_is_next(costs(Ledger()))] == [NEXT, FIRST, *optional]
    first = {(NAME, run, 0): DONE for run in ("rates/fast", "rates/slow")}
    assert [*what_is_next(costs(Ledger(first)))] == ["Nothing due is left.", *optional]
    every = {(NAME, run, seed): DONE for _, run, _ in first for seed in range(3)}
    assert [*what_is_next(costs(Ledger(every)))] == ["Nothing due is left."]
