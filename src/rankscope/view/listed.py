"""Rows of the tables that answers of JSON fill: rankings, stages, claims and runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rankscope.view.moved import moved
from rankscope.view.panel_rows import Rows
from rankscope.view.papers import papers
from rankscope.view.query import Query
from rankscope.view.theory import theory

Answer = Mapping[str, Any]

MOVED = ("moved", "first", "last")
RANKED = ("name", "label", "kind", "block", *MOVED, "low", "high", "at")
STAGE = ("stage", "time", "until", "loss", "winner", "margin", "remarks")
SEED = ("seed", "value", "met")
RUN = (
    *("name", "folder", "status", "error", "experiment", "network", "variant", "scale", "seed"),
    *("decay", "alpha_log10", "snapshots", "along", "last", "last_loss", "loss_broke", "matrices"),
    *("tracker_seconds", "tracker_share", "started"),
)
SOUGHT = (
    *("name", "folder", "experiment", "network", "network_title", "model", "variant", "status"),
    "kind",
)


def _stages(answer: Answer, query: Query) -> Rows:
    """Yield the stages of Algorithm 1; the winner by its name."""
    names = {i: coordinate["name"] for i, coordinate in enumerate(answer["coordinates"])}
    named = [stage | {"winner": names.get(stage.get("winner"))} for stage in answer["stages"]]
    return _columns(named, STAGE)


def _claims(answer: Answer, query: Query) -> Rows:
    """Yield the seeds of every network of a paper's claims; of one claim its evidence too."""
    paper, scale, key = (query.text(name, "") for name in ("paper", "scale", "claim"))
    studies = [
        study
        for study in answer["papers"]
        if paper == study["key"] and scale in ("", study["scale"])
    ]
    claims = [
        claim for study in studies for claim in study["claims"] if key in ("", claim["claim"])
    ]
    if not claims:
        raise LookupError("there is no such claim here; take paper and claim from /api/papers")
    yield ["claim", "sentence", "quantity", "bound", "network", "verdict", *SEED]
    for claim in claims:
        for part in claim["networks"]:
            rule = [part["quantity"] or claim["quantity"], claim["bound"]]
            network = [part["label"], part["verdict"]]
            for seed in part["seeds"] or [{}]:
                outcome = [seed.get(name) for name in SEED]
                yield [claim["claim"], claim["sentence"], *rule, *network, *outcome]
    for table in (table for claim in claims if key for table in claim["tables"]):
        yield []
        yield from [[table["title"]]] if table.get("title") else []
        yield table["columns"]
        yield from table["rows"]


def filtered_runs(query: Query) -> Answer:
    """Return the runs whose text holds every word of `query`, as the page filters them."""
    words = query.text("query", "").lower().split()

    def text(run: Answer) -> str:
        known = [str(run[name]) for name in SOUGHT if run[name] is not None]
        return " ".join([*known, f"seed {run['seed']}"]).lower()

    runs = query.library.summaries()
    return {"runs": [run for run in runs if all(word in text(run) for word in words)]}


def _columns(rows: Iterable[Answer], columns: Sequence[str]) -> Rows:
    yield columns
    for row in rows:
        yield [row.get(column) for column in columns]


# Endpoint that answers for each table, and the rows of its answer.
LISTED: dict[str, tuple[Callable[[Query], Answer], Callable[[Answer, Query], Rows]]] = {
    "moved": (moved, lambda answer, query: _columns(answer["rows"], RANKED)),
    "kinds": (moved, lambda answer, query: _columns(answer["kinds"], ("kind", "count", *MOVED))),
    "depths": (moved, lambda answer, query: _columns(answer["depths"], ("block", "count", *MOVED))),
    "stages": (theory, _stages),
    "claims": (papers, _claims),
    "runs": (filtered_runs, lambda answer, query: _columns(answer["runs"], RUN)),
}
