"""The lines of Python that read what the tables of runs and of claims show."""

from collections.abc import Iterator
from pathlib import Path

from rankscope.view.listed import filtered_runs
from rankscope.view.papers import path_of_verdicts
from rankscope.view.query import Query

SHOWN = ("seed", "decay", "wall_seconds")  # attributes of a run


def runs_lines(query: Query) -> Iterator[str]:
    """Yield lines that open the runs of the list, but damaged ones."""
    runs = [run for run in filtered_runs(query)["runs"] if run["error"] is None]
    yield "paths = ["
    yield from (f"    {str(_absolute(query, run['id']))!r}," for run in runs)
    yield "]"
    yield "for path in paths:"
    yield "    run = rs.open(path)"
    yield f"    print(path, dict(run.sizes), [run.attrs.get(name) for name in {SHOWN!r}])"


def claims_lines(query: Query) -> Iterator[str]:
    """Yield lines that read the verdicts of a paper, or of one of its claims."""
    path = path_of_verdicts(query, query.text("paper"), query.text("scale", ""))
    claim = query.text("claim", "")
    yield "import json"
    yield "from pathlib import Path"
    yield "from rankscope.lab.judging.verdict import Verdict"
    yield ""
    yield f"stored = json.loads(Path({str(path)!r}).read_bytes())"
    yield "for verdict in map(Verdict.from_json, stored['verdicts']):"
    if claim:
        yield f"    if verdict.claim != {claim!r}:"
        yield "        continue"
    yield "    for network in verdict.networks:"
    yield "        seeds = [(seed.seed, seed.value, seed.met) for seed in network.seeds]"
    yield "        print(verdict.claim, network.label, network.word, seeds)"


def _absolute(query: Query, key: str) -> Path:
    return query.library.place(key).path.absolute()
