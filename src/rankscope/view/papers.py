"""The papers' claims: verdicts that are stored beside runs, with evidence, runs and figures."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rankscope.store.source import leads_into
from rankscope.view.frames import plain
from rankscope.view.library import Library
from rankscope.view.network_titles import network_title
from rankscope.view.query import Query

VERDICTS = "verdicts.json"
MOST_BYTES = 16 * 1024 * 1024
MOST_FILES = 200
NO_VERDICTS = (
    "There are no verdicts in these folders. Open the archived runs with: rankscope view results"
)
TITLES = {
    "yunis2024": "Rank Minimization, Alignment and Weight Decay in Neural Networks",
    "boix2023": "Transformers learn through gradual rank increase",
    "findings": "Beyond the papers",
}
# Figures that show a claim, and an earlier rule for it, as on the pages of the papers.
FIGURES = {
    "Y1": ("figure-1",),
    "Y2": ("figure-2",),
    "Y3": ("figure-3",),
    "Y3b": ("figure-3",),
    "Y4": ("decay-overview", "figure-4"),
    "Y5": ("figure-5",),
    "Y6": ("figure-6",),
    "Y8": ("figure-7",),
    "Y8b": ("figure-7",),
    "Y9": ("grokking",),
    "Y12": ("rank-by-decay",),
    "B1": ("figure-6",),
    "B2": ("figure-7", "figure-8"),
    "B3": ("activation-errors",),
    "B5": ("figure-9", "figure-10"),
    "B6": ("figure-3",),
    "B7": ("figure-12", "figure-1", "figure-11"),
    "B8": ("figure-4", "figure-4-vo", "figure-2"),
    "B9": ("figure-5",),
    "B9-VO": ("figure-5-vo",),
}


def papers(query: Query) -> dict[str, Any]:
    """Return the claims of every study whose verdicts lie in the folders."""
    listed = [_study(query.library, path, root) for path, root in _verdict_files(query.library)]
    studies = [study for study in listed if study is not None]
    return plain(  # type: ignore[no-any-return]
        {"papers": studies, "legend": _legend()} if studies else {"papers": [], "hint": NO_VERDICTS}
    )


def _legend() -> str:
    from rankscope.lab.judging.verdict import LEGEND  # the laboratory, for this view alone

    return LEGEND


def figure(query: Query) -> bytes:
    """Return one of the figures that are listed; the path is compared, never joined."""
    wanted = query.text("path")
    for path, root in _verdict_files(query.library):
        for name, file in _figures(path, root):
            if name == wanted:
                return file.read_bytes()
    raise LookupError("there is no such figure here; take its path from /api/papers")


def path_of_verdicts(query: Query, key: str, scale: str) -> Path:
    """Return the file that holds the verdicts of a study."""
    for path, root in _verdict_files(query.library):
        study = _study(query.library, path, root)
        if study is not None and study["key"] == key and scale in ("", study["scale"]):
            return path
    raise LookupError("there is no such study here; take paper and scale from /api/papers")


def _verdict_files(library: Library) -> Iterator[tuple[Path, Path]]:
    """Yield the files of verdicts near the top of the folders, without following links."""
    count = 0
    for folder in library.folders:
        root = folder.resolve()
        for pattern in (VERDICTS, f"*/{VERDICTS}", f"*/*/{VERDICTS}", f"*/*/*/{VERDICTS}"):
            for path in sorted(root.glob(pattern)):
                count += 1
                if count > MOST_FILES:
                    return
                if path.is_file() and leads_into(path, root) and path.stat().st_size <= MOST_BYTES:
                    yield path, root


def _study(library: Library, path: Path, root: Path) -> dict[str, Any] | None:
    from rankscope.lab.judging.verdict import Verdict  # the laboratory, for this view alone

    try:
        stored = json.loads(path.read_bytes())
        verdicts = [Verdict.from_json(entry) for entry in stored["verdicts"]]
        key, scale = str(stored["study"]), str(stored.get("scale", ""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # damaged or foreign; the others are shown
    rows = [row for row in library.summaries() if row["experiment"] and not row["error"]]
    rows = [row for row in rows if scale in ("", row["scale"])]
    figures = [name for name, _ in _figures(path, root)]
    networks = dict.fromkeys(n.label for verdict in verdicts for n in verdict.networks)
    return {
        "key": key,
        "title": TITLES.get(key, key),
        "scale": scale,
        "networks": list(networks),
        "titles": {
            network.network: network_title(network.experiment, network.network)
            for verdict in verdicts
            for network in verdict.networks
        },
        "claims": [_claim(verdict, rows, figures) for verdict in verdicts],
        "figures": figures,
    }


def _claim(verdict: Any, rows: list[dict[str, Any]], figures: list[str]) -> dict[str, Any]:
    listed = verdict.to_json()
    for entry, network in zip(listed["networks"], verdict.networks, strict=True):
        entry |= {
            "label": network.label,
            "verdict": network.word,
            "mark": network.mark,
            "value": network.value,
            "runs": list(_runs(network, rows)),
        }
    words = [network.word for network in verdict.networks]
    return {
        **listed,
        "marks": {network.label: network.word for network in verdict.networks},
        "words": words,
        "figures": _own_figures(verdict, figures),
    }


def _runs(network: Any, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the runs of a verdict: of its seeds, and of its variant if it is of one alone."""
    from rankscope.lab.running.run_key import variant_name

    seeds = {outcome.seed for outcome in network.seeds}
    variant = variant_name(network.variant)
    for row in rows:
        named = row["experiment"], row["network"]
        if named != (network.experiment, network.network) or row["seed"] not in seeds:
            continue
        if variant in ("", (row["variant"] or "").rpartition("/")[2]):
            yield row["id"]


def _own_figures(verdict: Any, figures: list[str]) -> list[str]:
    """Return the figures of a claim that are there."""
    wanted = FIGURES.get(verdict.claim.removesuffix("-first"), ())
    return [name for stem in wanted for name in figures if Path(name).stem == stem]


def _figures(verdicts: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and file of the figures beside verdicts, and of the archive's documents."""
    study = verdicts.parent.name
    beside = [(verdicts.parent, verdicts.parent)]
    documents = root.parent / "docs" / "papers" / "figures" / study
    if root.name == "results" and documents.is_dir():
        beside.append((documents, documents))
    for folder, limit in beside:
        for file in sorted([*folder.glob("*.png"), *folder.glob("figures/*.png")])[:MOST_FILES]:
            if file.is_file() and leads_into(file, limit) and file.stat().st_size <= MOST_BYTES:
                yield f"{study}/{file.relative_to(folder).as_posix()}", file
