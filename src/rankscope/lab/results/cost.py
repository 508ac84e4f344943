"""The command `rankscope results due`: what is due, what is done, what all of it costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table

from rankscope.lab.catalogue import load
from rankscope.lab.results import program
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.lab.tables import duration


@dataclass(frozen=True)
class BatchCost:
    """Of one batch: its runs, those that are done, what all were expected to take on a machine.

    taken: seconds in which at least one of those done was running.
    """

    batch: program.Batch
    runs: int
    done: int
    expected: float | None
    machine: str
    taken: float


def costs(ledger: Ledger) -> list[BatchCost]:
    """Of every batch of the program, in its order."""
    found = []
    for batch in program.PROGRAM:
        experiment = load(batch.experiment, "paper")
        keys = [(batch.experiment, run, seed) for run in experiment.runs for seed in batch.seeds]
        there = [ledger.done[key] for key in keys if key in ledger.done]
        seconds = experiment.expected_seconds
        share = len(batch.seeds) / len(experiment.seeds)
        found.append(
            BatchCost(
                batch,
                runs=len(keys),
                done=len(there),
                expected=None if seconds is None else seconds * share,
                machine=experiment.expected_on,
                taken=busy_seconds(there),
            )
        )
    return found


def busy_seconds(done: Iterable[Done]) -> float:
    """How long at least one of them was running."""
    spans = sorted(
        (datetime.fromisoformat(each.started).timestamp(), each.seconds) for each in done
    )
    busy, until = 0.0, float("-inf")
    for start, seconds in spans:
        busy += max(0.0, start + seconds - max(start, until))
        until = max(until, start + seconds)
    return busy


def cost_table(found: list[BatchCost]) -> Table:
    """A row for each batch, and the sums of those on each machine."""
    table = Table(
        "rankscope run", "done", "expected", "taken", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for each in found:
        table.add_row(
            each.batch.command.removeprefix("rankscope run ")
            + " [dim](optional)[/dim]" * each.batch.optional,
            f"{each.done} of {each.runs}",
            duration(each.expected),
            duration(each.taken) if each.done else "-",
        )
    for machine in dict.fromkeys(each.machine for each in found):
        for optional in (False, True):
            same = [e for e in found if (e.machine, e.batch.optional) == (machine, optional)]
            if same:
                table.add_row(*_sums(same, f"{'optional' if optional else 'due'}, {machine}"))
    return table


def _sums(found: list[BatchCost], name: str) -> tuple[str, str, str, str]:
    known = [each.expected for each in found if each.expected is not None]
    unknown = " + ?" if len(known) < len(found) else ""
    runs = f"{sum(each.done for each in found)} of {sum(each.runs for each in found)}"
    taken = sum(each.taken for each in found)
    return f"[bold]{name}[/bold]", runs, f"{duration(sum(known))}{unknown}", duration(taken)
