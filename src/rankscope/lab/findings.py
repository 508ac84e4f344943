"""What stored runs show: a verdict for each claim, and the figures."""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from rankscope.figures import save
from rankscope.lab.experiment import Claim, Experiment, FigureMaker, Scale
from rankscope.lab.paper import Paper
from rankscope.lab.reading import network
from rankscope.lab.shelf import Attempt, Shelf, read_shelf, results_of, with_whole_seeds
from rankscope.lab.tables import LOST
from rankscope.lab.verdict import Verdict, undecided
from rankscope.store.files import replace_file


@dataclass(frozen=True)
class Drawing:
    """A figure: its files, none if it could not be drawn; `remarks` say what it lacks."""

    name: str
    caption: str
    files: tuple[Path, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """Verdicts and figures, with what had to be left out.

    faults: tracebacks of claims and figures that raised: mistakes in their code, not in the runs.
    empty: no run is whole.
    """

    verdicts: tuple[Verdict, ...]
    drawings: tuple[Drawing, ...]
    faults: tuple[str, ...]
    empty: bool

    @property
    def figures(self) -> tuple[Path, ...]:
        return tuple(path for drawing in self.drawings for path in drawing.files)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on seeds that a figure lacks or figures that lack every seed."""
        return tuple(remark for drawing in self.drawings for remark in drawing.remarks)


@dataclass(frozen=True)
class Subject:
    """What is judged together; `name` is also its folder: "yunis2024", "boix2023/toy-diag"."""

    name: str
    experiments: tuple[Experiment, ...]
    claims: Mapping[str, Claim]
    figures: Mapping[str, FigureMaker]


def subject_of(experiment: Experiment) -> Subject:
    """An experiment by itself."""
    return Subject(experiment.name, (experiment,), experiment.claims, experiment.figures)


def joint_subject(paper: Paper) -> Subject:
    """All experiments of a paper."""
    return Subject(paper.name, paper.experiments, paper.claims, paper.figures)


def find(experiment: Experiment, out: Path, *, seeds: tuple[int, ...] = ()) -> Findings:
    """Judge the claims of an experiment, draw its figures, and write both beside the runs.

    Uses every declared seed of which something is there, and `seeds` in any case.
    """
    subject, folder = subject_of(experiment), experiment.folder(out)
    shelves = {experiment.name: read_shelf(experiment, out, seeds=seeds)}
    findings = examine(subject, shelves, folder / "figures")
    content = verdicts_json(experiment.name, experiment.scale, findings.verdicts)
    write_json(content, folder / "verdicts.json")
    return findings


def examine(
    subject: Subject,
    shelves: Mapping[str, Shelf],
    folder: Path,
    *,
    save: Callable[[Figure, Path], tuple[Path, ...]] = save,
) -> Findings:
    """Judge the claims of a subject and draw its figures, which are written to `folder`.

    shelves: what is stored, by the names of experiments.
    """
    shelf = {run: of for each in subject.experiments for run, of in shelves[each.name].items()}
    judged = {key: with_whole_seeds(claim, shelf) for key, claim in subject.claims.items()}
    verdicts = tuple(verdict_of(key, subject.claims[key], each) for key, each in judged.items())
    drawings, faults = [], [attempt.fault for attempt in judged.values()]
    for name, maker in subject.figures.items():
        attempt = with_whole_seeds(maker, shelf)
        files: tuple[Path, ...] = ()
        if attempt.found is not None:
            with rc_context({"svg.hashsalt": name}):  # names in the file, alike at each drawing
                files = save(attempt.found, folder / name)
        drawings.append(Drawing(name, docstring(maker), files, tuple(_remarks_on(name, attempt))))
        faults.append(attempt.fault)
    empty = not results_of(shelf)
    return Findings(verdicts, tuple(drawings), tuple(filter(None, faults)), empty)


def verdict_of(key: str, claim: Claim, attempt: Attempt[Verdict]) -> Verdict:
    """The verdict of one claim; undecided, with the reason, where a seed was lost or all were.

    A network that has all its runs and says no settles it, whatever others lack.
    """
    first = " ".join(docstring(claim).partition("\n\n")[0].split())
    rule = first.removeprefix(f"{key}. ")
    verdict = attempt.found or undecided(key, rule, f"could not be judged: {attempt.reason}")
    assert verdict.claim == key, f"calls {verdict.claim} by the key {key}"
    if not attempt.lost:
        return verdict
    evidence = (*(f"{LOST}{lost}" for lost in attempt.lost), *verdict.evidence)
    settled = any(
        each.holds == "no" and _asked(each.network) in attempt.complete for each in verdict.networks
    )
    return replace(verdict, holds="no" if settled else "undecided", evidence=evidence)


def _asked(judged: str) -> str:
    """ "vit" of "vit/scale-1, K-Q": claims may judge a network run by run, or in parts."""
    return network(judged.partition(", ")[0])


def _remarks_on(name: str, attempt: Attempt[Figure]) -> list[str]:
    """What a reader of the figure, or one who looks for it in vain, should know."""
    remarks = [f"{name} is drawn without {lost}" for lost in attempt.lost]
    if attempt.found is None:
        remarks = [f"{name} could not be drawn: {attempt.reason}", *attempt.lost]
    return remarks


def docstring(function: Any) -> str:
    """Of the function itself where it is given with some of its arguments; "" if there is none."""
    while isinstance(function, partial):
        function = function.func
    return inspect.getdoc(function) or ""


def verdicts_json(of: str, scale: Scale, verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """What programs read; `of` is an experiment, or a paper judged as a whole."""
    return {"of": of, "scale": scale, "verdicts": [each.to_json() for each in verdicts]}


def write_json(content: dict[str, Any], path: Path) -> None:
    text = json.dumps(content, indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{text}\n".encode(), durable=False)


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as wrong:
        raise ValueError(f"{path} is not whole ({wrong}); restore it") from None
    return content
