"""Progress bars of several runs: one line for all, and one for each that is running."""

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from rankscope.lab.running.processes import Ended


class Bars:
    """A `Watcher` that draws on a console; a context manager."""

    def __init__(self, console: Console, *, total: int) -> None:
        self._console = console
        self._total = total
        self._finished = 0
        self._running: dict[str, TaskID] = {}
        self._fractions: dict[str, float] = {}
        self._first_failed: dict[str, str] = {}  # reason -> title
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=12),
            TaskProgressColumn(table_column=Column(min_width=4)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            TimeRemainingColumn(table_column=Column(min_width=7)),
            # On a narrow terminal this column is truncated first.
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, ratio=1)),
            console=console,
        )
        self._all = self._progress.add_task(self._count(), total=float(total), note="")

    def started(self, title: str) -> None:
        self._running[title] = self._progress.add_task(f"  {escape(title)}", total=1.0, note="")

    def progressed(self, title: str, fraction: float, note: str = "") -> None:
        self._fractions[title] = min(max(fraction, 0.0), 1.0)
        self._progress.update(
            self._running[title], completed=self._fractions[title], note=escape(note)
        )
        self._advance()

    def ended(self, ended: Ended) -> None:
        self._progress.remove_task(self._running.pop(ended.title))
        self._fractions.pop(ended.title, None)
        self._finished += 1
        self._advance()
        if ended.failure:
            self._print_failure(ended.title, ended.failure)

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _print_failure(self, title: str, reason: str) -> None:
        """Print a failure; a reason that another run had, such as missing data, only once."""
        first = self._first_failed.setdefault(reason, title)
        shown = reason if first == title else f"for the same reason as {first}"
        self._console.print(
            f"[red]failed[/red] {escape(title)}: {escape(shown)}", highlight=False, soft_wrap=True
        )

    def _advance(self) -> None:
        done = self._finished + sum(self._fractions.values())
        self._progress.update(self._all, completed=done, description=self._count())

    def _count(self) -> str:
        return f"{self._finished} of {self._total} runs"
