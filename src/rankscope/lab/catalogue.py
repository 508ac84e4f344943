"""The experiments there are: every file of `lab/experiments/<paper>/` is one."""

import difflib
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rankscope.lab.experiment import SCALES, Experiment, Scale
from rankscope.lab.stored_run import stored_runs

PACKAGE = "rankscope.lab.experiments"


def names() -> tuple[str, ...]:
    """Their names: the file boix2023/toy_diag.py is boix2023/toy-diag."""
    return tuple(sorted(_modules()))


def load(name: str, scale: Scale) -> Experiment:
    """An experiment at one scale; ValueError naming those there are if it is none of them."""
    modules = _modules()
    if name not in modules:
        near = difflib.get_close_matches(name, modules, n=1)
        near += [known for known in modules if known.rpartition("/")[2] == name]
        hint = f"; did you mean {near[-1]}?" if near else ""
        known = ", ".join(sorted(modules)) or "none yet"
        raise ValueError(f"there is no experiment {name!r}{hint} (there are: {known})")
    experiment: Experiment = import_module(modules[name]).experiment(scale)
    assert (experiment.name, experiment.scale) == (name, scale), modules[name]
    return experiment


class Entry(NamedTuple):
    """An experiment at one scale, of which `whole` of `total` runs are there."""

    experiment: str
    summary: str
    scale: Scale
    expected_seconds: float | int | None
    seeds: int
    total: int
    whole: int


def entries(out: Path) -> list[Entry]:
    """Every experiment at every scale, and how much of it is in `out`."""
    found = []
    for name, module in sorted(_modules().items()):
        summary = (inspect.getdoc(import_module(module)) or "").partition("\n")[0]
        for scale in SCALES:
            experiment = load(name, scale)
            runs = stored_runs(experiment, out)
            whole = sum(run.state == "whole" for run in runs)
            seconds, seeds = experiment.expected_seconds, len(experiment.seeds)
            found.append(Entry(name, summary, scale, seconds, seeds, len(runs), whole))
    return found


def _modules() -> dict[str, str]:
    """Name of each experiment -> the module it is declared in."""
    package = import_module(PACKAGE)
    return {
        module.name.removeprefix(f"{PACKAGE}.").replace(".", "/").replace("_", "-"): module.name
        for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}.")
        if not module.ispkg
    }
