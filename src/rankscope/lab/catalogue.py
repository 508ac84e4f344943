"""The experiments there are: every file of `lab/experiments/<paper>/` is one.

So are the papers: every file of `lab/papers/`.
"""

import difflib
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rankscope.lab.experiment import SCALES, Experiment, Scale
from rankscope.lab.kept_run import is_results
from rankscope.lab.paper import Paper
from rankscope.lab.stored_run import stored_runs

PACKAGE = "rankscope.lab.experiments"
PAPERS = "rankscope.lab.papers"


def names() -> tuple[str, ...]:
    """Their names: the file boix2023/toy_diag.py is boix2023/toy-diag."""
    return tuple(sorted(_modules(PACKAGE)))


def load(name: str, scale: Scale) -> Experiment:
    """An experiment at one scale; ValueError naming those there are if it is none of them."""
    modules = _modules(PACKAGE)
    if name not in modules:
        raise _unknown("experiment", name, modules)
    experiment: Experiment = import_module(modules[name]).experiment(scale)
    assert (experiment.name, experiment.scale) == (name, scale), modules[name]
    return experiment


def experiments_of(paper: str, scale: Scale) -> tuple[Experiment, ...]:
    """Those of one paper."""
    return tuple(load(name, scale) for name in names() if name.startswith(f"{paper}/"))


def summary(name: str) -> str:
    """The first line of what an experiment's file says of itself."""
    return (inspect.getdoc(import_module(_modules(PACKAGE)[name])) or "").partition("\n")[0]


def paper_names() -> tuple[str, ...]:
    """The papers' keys."""
    return tuple(sorted(_modules(PAPERS)))


def load_paper(name: str, scale: Scale) -> Paper:
    """A paper at one scale; ValueError naming those there are if it is none of them."""
    modules = _modules(PAPERS)
    if name not in modules:
        raise _unknown("paper", name, modules)
    paper: Paper = import_module(modules[name]).paper(scale)
    assert (paper.name, paper.scale) == (name, scale), modules[name]
    return paper


def _unknown(kind: str, name: str, modules: dict[str, str]) -> ValueError:
    near = difflib.get_close_matches(name, modules, n=1)
    near += [known for known in modules if known.rpartition("/")[2] == name]
    hint = f"; did you mean {near[-1]}?" if near else ""
    known = ", ".join(sorted(modules)) or "none yet"
    return ValueError(f"there is no {kind} {name!r}{hint} (there are: {known})")


class Entry(NamedTuple):
    """An experiment at one scale, of which `whole` of `total` runs are there, and some are kept."""

    experiment: str
    summary: str
    scale: Scale
    expected_seconds: float | int | None
    expected_on: str
    seeds: int
    total: int
    whole: int
    kept: int = 0


def entries(out: Path, *, results: Path) -> list[Entry]:
    """Every experiment at every scale, how much of it is in `out`, and how much in `results`.

    Where `out` is itself a folder of results, at scale paper alone: nothing else is kept.
    """
    if is_results(out):
        return [_entry(load(name, "paper"), out, None) for name in names()]
    kept = results if is_results(results) else None
    return [_entry(load(name, scale), out, kept) for name in names() for scale in SCALES]


def _entry(experiment: Experiment, out: Path, results: Path | None) -> Entry:
    return Entry(
        experiment.name,
        summary(experiment.name),
        experiment.scale,
        experiment.expected_seconds,
        experiment.expected_on,
        seeds=len(experiment.seeds),
        total=len(experiment.runs) * len(experiment.seeds),
        whole=_whole(experiment, out),
        kept=_whole(experiment, results) if results and experiment.scale == "paper" else 0,
    )


def _whole(experiment: Experiment, folder: Path) -> int:
    return sum(run.state == "whole" for run in stored_runs(experiment, folder))


def _modules(package: str) -> dict[str, str]:
    """Name of each experiment or paper -> the module it is declared in."""
    path = import_module(package).__path__
    return {
        module.name.removeprefix(f"{package}.").replace(".", "/").replace("_", "-"): module.name
        for module in pkgutil.walk_packages(path, f"{package}.")
        if not module.ispkg
    }
