"""Finding studies and experiments by name, by import path, or by file."""

import difflib
import importlib.util
import inspect
import pkgutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rankscope.lab.archive.archived_files import is_archive
from rankscope.lab.experiment import SCALES, Experiment, Scale, Study, study_of
from rankscope.lab.running.stored_run import runs_on_disk

PAPERS = "rankscope.lab.papers"


def study_names() -> tuple[str, ...]:
    """Return the names of all studies, every package of `lab/papers`: the newest paper first.

    A paper's key ends in its year. Studies of our own come last.
    """
    path = import_module(PAPERS).__path__
    names = (module.name for module in pkgutil.iter_modules(path) if module.ispkg)
    return tuple(sorted(names, key=lambda name: (name[-1].isdigit(), name), reverse=True))


def load_study(name: str, scale: Scale) -> Study:
    """Return the study of a paper, or one of our own, at one scale."""
    if name not in study_names():
        raise ValueError(_unknown("paper", name, list(study_names())))
    study: Study = import_module(f"{PAPERS}.{name}").study(scale)
    return study


def load_studies(scale: Scale, name: str | None = None) -> tuple[Study, ...]:
    """Return one study, or all of them."""
    return tuple(load_study(key, scale) for key in ([name] if name else study_names()))


def load_papers(scale: Scale) -> tuple[Study, ...]:
    """Return the studies of all papers, without those of our own."""
    return tuple(study for study in load_studies(scale) if not study.ours)


def load(name: str, scale: Scale) -> Study:
    """Return one experiment as a study.

    name: "paper/experiment", the import path of a module ("my_package.my_module"), or a Python
    file ("my_experiment.py"). The module has a function `experiment(scale) -> Experiment`.
    """
    if str(Path.cwd()) not in sys.path:  # a console script does not look there
        sys.path.append(str(Path.cwd()))
    if name.endswith(".py") or _importable(name):
        return _own_study(name, scale)
    studies = load_studies(scale)
    experiments = {part.name: (study, part) for study in studies for part in study.experiments}
    if name not in experiments:
        raise ValueError(_unknown("experiment", name, list(experiments)))
    study, experiment = experiments[name]
    return study.restrict([experiment])


def summary(experiment: Experiment) -> str:
    """Return the first line of an experiment module's docstring, without its references."""
    paper, _, name = experiment.name.partition("/")
    module = import_module(f"{PAPERS}.{paper}.{name.replace('-', '_')}")
    return (inspect.getdoc(module) or "").partition("\n")[0].partition(" (")[0].rstrip(".")


@dataclass(frozen=True)
class Entry:
    """An experiment at one scale: its cost, and how many of its runs are whole.

    archived: how many runs of scale paper the archive has.
    """

    experiment: str
    summary: str
    scale: Scale
    expected_seconds: float | int | None
    expected_on: str
    seeds: int
    total: int
    whole: int
    archived: int = 0


def entries(out: Path, *, archive: Path) -> list[Entry]:
    """Return every experiment of the studies at every scale, with its runs in `out` and archive.

    If `out` is an archive itself, only scale paper is listed.
    """
    scales = ("paper",) if is_archive(out) else SCALES
    return [
        Entry(
            experiment.name,
            summary(experiment),
            scale,
            experiment.expected_seconds,
            experiment.expected_on,
            seeds=len(experiment.seeds),
            total=len(experiment.runs) * len(experiment.seeds),
            whole=_whole(experiment, out),
            archived=_whole(experiment, archive) if scale == "paper" and out != archive else 0,
        )
        for name in study_names()
        for experiments in zip(
            *(load_study(name, scale).experiments for scale in scales), strict=True
        )
        for scale, experiment in zip(scales, experiments, strict=True)
    ]


def _whole(experiment: Experiment, folder: Path) -> int:
    return sum(run.state == "whole" for run in runs_on_disk(experiment, folder))


def _own_study(name: str, scale: Scale) -> Study:
    """Load an experiment from outside the package."""
    module = _module_of_file(Path(name)) if name.endswith(".py") else import_module(name)
    if not callable(getattr(module, "experiment", None)):
        raise ValueError(
            f"{name} has no function experiment(scale) that returns a rankscope.lab.Experiment; "
            "see the how-to page 'Add an experiment'"
        )
    experiment = module.experiment(scale)
    if not isinstance(experiment, Experiment):
        raise ValueError(
            f"{name}: experiment({scale!r}) must return a rankscope.lab.Experiment; "
            f"got {type(experiment).__name__}"
        )
    title = (inspect.getdoc(module) or name).partition("\n")[0]
    return study_of(experiment, title)


def _module_of_file(path: Path) -> ModuleType:
    """Import a file under its own name, so that other processes can import it too."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file; give a Python file, or a name of rankscope list")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # behind the standard library, which other processes import too
    module = import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path.resolve():
        raise ValueError(
            f"{path}: the name {path.stem!r} belongs to another module ({module.__file__}); "
            "rename the file"
        )
    return module


def _importable(name: str) -> bool:
    if "/" in name or "-" in name:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as missing:
        if missing.name and f"{name}.".startswith(f"{missing.name}."):
            return False
        raise


def _unknown(kind: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    near += [candidate for candidate in known if candidate.rpartition("/")[2] == name]
    hint = f"; did you mean {near[-1]}?" if near else ""
    return f"there is no {kind} {name!r}{hint} (there are: {', '.join(sorted(known))})"
