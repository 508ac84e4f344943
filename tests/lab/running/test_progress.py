import io

from rich.console import Console

from rankscope.lab.running.processes import Ended
from rankscope.lab.running.progress import Bars


def test_all_lines_and_the_failures(width: int = 100) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, no_color=True)
    with Bars(console, total=4) as bars:
        bars.started("teacher-1/alpha-[1e-8], seed 0")
        bars.started("b, seed 0")
        bars.progressed("b, seed 0", 0.5)
        bars.progressed("teacher-1/alpha-[1e-8], seed 0", 1.5)  # a careless run
        drawn = shown(bars, width)
        assert "0 of 4 runs" in drawn[0] and "38%" in drawn[0]  # (1 + 0.5) / 4
        assert "teacher-1/alpha-[1e-8], seed 0" in drawn[1] and "100%" in drawn[1]
        assert "b, seed 0" in drawn[2] and "50%" in drawn[2]
        bars.ended(Ended("b, seed 0", 1.0, "ValueError: [no]"))
        bars.ended(Ended("teacher-1/alpha-[1e-8], seed 0", 1.0))
        assert len(shown(bars, width)) == 1 and "2 of 4 runs" in shown(bars, width)[0]
        assert "50%" in shown(bars, width)[0]
    assert "failed b, seed 0: ValueError: [no]" in console.file.getvalue()


def test_what_several_runs_fail_for_is_told_once() -> None:
    console = Console(file=io.StringIO(), width=100)
    with Bars(console, total=3) as bars:
        for title, reason in (("a", "no data"), ("b", "the disk is full"), ("c", "no data")):
            bars.started(title)
            bars.ended(Ended(title, 1.0, reason))
    told = [line for line in console.file.getvalue().splitlines() if line.startswith("failed")]
    assert told == [
        "failed a: no data",
        "failed b: the disk is full",
        "failed c: for the same reason as a",
    ]


def shown(bars: Bars, width: int) -> list[str]:
    page = Console(width=width)
    with page.capture() as capture:
        page.print(bars._progress.get_renderable())
    return capture.get().splitlines()
