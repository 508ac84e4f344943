import pytest
from rich.console import Console

from lab.results.toy_results import NAME, use_toys
from rankscope.lab.results.cost import busy_seconds, cost_table, costs
from rankscope.lab.results.ledger import Done, Ledger


def done(started: str, seconds: float) -> Done:
    return Done("", "", "", f"2026-01-01T{started}+00:00", seconds, "", 1, "", 0)


def test_runs_side_by_side_count_once() -> None:
    together = [done("00:00:00", 60.0), done("00:00:30", 60.0), done("00:00:40", 10.0)]
    assert busy_seconds(together) == pytest.approx(90)
    assert busy_seconds([*together, done("05:00:00", 7.0)]) == pytest.approx(97)
    assert busy_seconds([]) == 0


def test_what_is_due_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    use_toys(monkeypatch)
    found = costs(Ledger({(NAME, "rates/fast", 1): done("00:00:00", 600.0)}))
    assert [(each.runs, each.done) for each in found] == [(2, 0), (4, 1)]
    assert [each.expected for each in found] == pytest.approx([2400, 4800])  # of 2 h, 3 seeds
    console = Console(width=100)
    with console.capture() as printed:
        console.print(cost_table(found))
    lines = [" ".join(line.split()) for line in printed.get().splitlines()]
    assert f"{NAME} --scale paper --seed 0 0 of 2 40 min -" in lines
    assert f"{NAME} --scale paper --seed 1 --seed 2 (optional) 1 of 4 80 min 10 min" in lines
    assert "due, 2 cores 0 of 2 40 min 0 s" in lines
