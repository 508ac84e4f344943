"""The command `rankscope results due`: what is due, what is done, what all of it costs."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from rankscope.lab.catalogue import load
from rankscope.lab.report_runs import busy_seconds
from rankscope.lab.results import ledger as program
from rankscope.lab.results.ledger import Batch, Ledger, run_command
from rankscope.lab.tables import duration, plain_table

NEXT = "Next (with --data FOLDER where the data sets are not downloaded):"


@dataclass(frozen=True)
class BatchCost:
    """Of one batch: its runs, those that are done, what all were expected to take on a machine.

    taken: seconds in which at least one of those done was running.
    """

    batch: Batch
    runs: int
    done: int
    expected: float | None
    machine: str
    taken: float


def costs(ledger: Ledger) -> list[BatchCost]:
    """Of every batch of the program, in its order."""
    found = []
    for batch in program.PROGRAM:
        experiment, keys = load(batch.experiment, "paper"), list(batch.keys)
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
                taken=busy_seconds((each.started, each.seconds) for each in there),
            )
        )
    return found


def cost_table(found: list[BatchCost]) -> Table:
    """A row for each batch, and the sums of those on each machine."""
    table = plain_table("runs", "done", "expected", "taken")
    for each in found:
        seeds = ", ".join(map(str, each.batch.seeds))
        table.add_row(
            f"{each.batch.experiment}, seed {seeds}" + " (optional)" * each.batch.optional,
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


def what_is_next(found: list[BatchCost]) -> Iterator[str]:
    """Lines to be read and pasted: what is left, in its order."""
    left = [each.batch for each in found if each.done < each.runs]
    due, optional = ([b for b in left if b.optional == kind] for kind in (False, True))
    yield NEXT if due else "Nothing due is left."
    yield from (run_command(batch.experiment, *batch.seeds) for batch in due)
    if optional:
        yield "As machine time allows:"
        yield from (run_command(batch.experiment, *batch.seeds) for batch in optional)
