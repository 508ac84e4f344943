"""Figures of kept runs as PNG files that are small enough to be kept themselves."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from rankscope.figures.style import FIGURE_DPI
from rankscope.lab.findings import Subject, examine
from rankscope.lab.results.judging import Shelves, inputs_of
from rankscope.lab.results.ledger import Drawn, Ledger, digest
from rankscope.lab.results.rules import DRAWING, code_hash
from rankscope.store.files import replace_file

FIGURES = "figures"
COLOURS = 256  # of a palette, a third of the bytes; heat maps have no more


def path_of(subject: Subject, name: str) -> str:
    """Within the results."""
    return f"{subject.name}/{FIGURES}/{name}.png"


def origins(subject: Subject, ledger: Ledger) -> dict[str, tuple[str, str]]:
    """The figures a subject can have: their paths, and hashes of what they are drawn of and by."""
    inputs = inputs_of(subject, ledger)
    return {
        path_of(subject, name): (inputs, code_hash(maker, of=DRAWING))
        for name, maker in subject.figures.items()
    }


def draw(
    subject: Subject, shelves: Shelves, ledger: Ledger, results: Path
) -> tuple[dict[str, Drawn], tuple[str, ...]]:
    """Its figures, drawn anew unless the same code has drawn them of the same files.

    Beside them tracebacks of those that raised.
    """
    now = origins(subject, ledger)
    there = {
        path: drawn
        for path, drawn in ledger.figures.items()
        if now.get(path) == (drawn.inputs, drawn.code)
        and drawn.sha256
        and drawn.sha256 == digest(results / path)
    }
    new = {name: m for name, m in subject.figures.items() if path_of(subject, name) not in there}
    folder = results / subject.name / FIGURES
    findings = examine(replace(subject, claims={}, figures=new), shelves, folder, save=_save)
    found = {
        path_of(subject, each.name): digest(each.files[0]) if each.files else ""
        for each in findings.drawings
    }
    drawn = {path: Drawn(sha256, *now[path]) for path, sha256 in found.items()}
    return there | drawn, findings.faults


def _save(figure: Figure, path: Path) -> tuple[Path, ...]:
    path = path.with_name(f"{path.name}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, png(figure), durable=False)
    return (path,)


def png(figure: Figure) -> bytes:
    """The figure with a palette of its own."""
    drawn, packed = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=FIGURE_DPI)
    picture = Image.open(drawn).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.FASTOCTREE).save(
        packed, format="png", optimize=True
    )
    return packed.getvalue()


def drawable(
    subject: Subject, shelves: Shelves, ledger: Ledger
) -> tuple[list[str], tuple[str, ...]]:
    """Figures that the ledger says cannot be drawn, and yet can be; tracebacks of those that raise.

    Nothing is written. To find that a figure lacks runs takes no time.
    """
    absent = {
        name: maker
        for name, maker in subject.figures.items()
        if (drawn := ledger.figures.get(path_of(subject, name))) and not drawn.sha256
    }
    findings = examine(
        replace(subject, claims={}, figures=absent), shelves, Path(), save=lambda _, path: (path,)
    )
    found = [path_of(subject, each.name) for each in findings.drawings if each.files]
    return found, findings.faults
