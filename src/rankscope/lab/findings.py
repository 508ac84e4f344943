"""What stored runs show: a verdict for each claim, and the figures."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from rankscope import __version__
from rankscope.figures import save
from rankscope.lab.experiment import Claim, Experiment, FigureMaker
from rankscope.lab.shelf import Attempt, Group, Shelf, read_shelf, together, with_whole_seeds
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
    """

    verdicts: tuple[Verdict, ...]
    drawings: tuple[Drawing, ...]
    faults: tuple[str, ...]

    @property
    def figures(self) -> tuple[Path, ...]:
        return tuple(path for drawing in self.drawings for path in drawing.files)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on seeds that a figure lacks or figures that lack every seed."""
        return tuple(remark for drawing in self.drawings for remark in drawing.remarks)


def find(experiment: Experiment, out: Path, *, seeds: tuple[int, ...] = ()) -> Findings:
    """Judge the claims of an experiment, draw its figures, and write both beside the runs.

    Uses every declared seed of which something is there, and `seeds` in any case.
    """
    shelf, folder = read_shelf(experiment, out, seeds=seeds), experiment.folder(out)
    findings = examine(experiment.claims, experiment.figures, shelf, folder / "figures")
    write_json(verdicts_json(experiment, findings.verdicts), folder / "verdicts.json")
    return findings


def examine(
    claims: Mapping[str, Claim],
    figures: Mapping[str, FigureMaker],
    shelf: Shelf,
    folder: Path,
    *,
    group: Group = together,
) -> Findings:
    """Judge `claims` and draw `figures`, which are written to `folder`."""
    judged = {key: with_whole_seeds(claim, shelf, group=group) for key, claim in claims.items()}
    verdicts = tuple(verdict_of(key, claims[key], attempt) for key, attempt in judged.items())
    drawings, faults = [], [attempt.fault for attempt in judged.values()]
    for name, maker in figures.items():
        attempt = with_whole_seeds(maker, shelf, group=group)
        drawings.append(_drawing(name, maker, attempt, folder))
        faults.append(attempt.fault)
    return Findings(verdicts, tuple(drawings), tuple(filter(None, faults)))


def _drawing(name: str, maker: FigureMaker, attempt: Attempt[Figure], folder: Path) -> Drawing:
    files: tuple[Path, ...] = ()
    if attempt.found is not None:
        with rc_context({"svg.hashsalt": name}):  # names within the file, alike at each drawing
            files = save(attempt.found, folder / name)
    return Drawing(name, docstring(maker), files, tuple(remarks_on(name, attempt)))


def verdict_of(key: str, claim: Claim, attempt: Attempt[Verdict]) -> Verdict:
    """The verdict of one claim; undecided, with the reason, where a seed was lost or all were.

    A network that has all its runs and says no settles it, whatever others lack.
    """
    rule = " ".join(docstring(claim).partition("\n\n")[0].split()).removeprefix(f"{key}. ")
    verdict = attempt.found or undecided(key, rule, f"could not be judged: {attempt.reason}")
    assert verdict.claim == key, f"calls {verdict.claim} by the key {key}"
    if not attempt.lost:
        return verdict
    evidence = (*(f"without {lost}" for lost in attempt.lost), *verdict.evidence)
    whole = [each for each in verdict.networks if each.network not in attempt.incomplete]
    settled = "" not in attempt.incomplete and any(each.holds == "no" for each in whole)
    return replace(verdict, holds="no" if settled else "undecided", evidence=evidence)


def remarks_on(name: str, attempt: Attempt[Figure]) -> list[str]:
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


def verdicts_json(experiment: Experiment, verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """What programs read."""
    return {
        "experiment": experiment.name,
        "scale": experiment.scale,
        "rankscope": __version__,
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }


def write_json(content: dict[str, Any], path: Path) -> None:
    text = json.dumps(content, indent=1, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, f"{text}\n".encode(), durable=False)
