"""From whole runs of the papers' size to the files that are kept of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from rankscope import store
from rankscope.lab.catalogue import load
from rankscope.lab.experiment import Experiment
from rankscope.lab.identity import declaration
from rankscope.lab.procedure import say
from rankscope.lab.results.archive import archive_attrs, archive_path, digest, write_archive
from rankscope.lab.results.compaction import LIMIT, Compaction, compact, compaction_of
from rankscope.lab.results.ledger import Done, Key, Ledger
from rankscope.lab.shelf import ABSENT
from rankscope.lab.stored_run import StoredRun, stored_runs
from rankscope.store.files import replace_file


@dataclass(frozen=True)
class Offer:
    """A whole run of the paper's size, and its name in the ledger."""

    key: Key
    stored: StoredRun


def offered(experiments: Iterable[Experiment], runs: Path) -> tuple[list[Offer], list[str]]:
    """The whole runs in a folder, and sentences on those that were declared otherwise."""
    found: list[Offer] = []
    refused: dict[str, list[str]] = {}
    for experiment in experiments:
        for stored in stored_runs(experiment, runs):
            state = stored.state
            if state == "whole":
                found.append(Offer((experiment.name, stored.name, stored.seed), stored))
            elif state in ("changed", "foreign"):
                why = f" ({'; '.join(stored.changes()[:3])})" if state == "changed" else ""
                sentence = f"each {ABSENT[state]}{why}"
                refused.setdefault(f"{experiment.name}: {sentence}", []).append(stored.title)
    return found, [f"not kept of {why}: {'; '.join(titles)}" for why, titles in refused.items()]


def keep_files(
    offers: Iterable[Offer], ledger: Ledger, results: Path, talk: Console
) -> dict[Key, Done]:
    """Write what is not kept yet, or was declared or compacted otherwise; all that is done then."""
    done = dict(ledger.done)
    for offer in offers:
        path, how = archive_path(results, *offer.key), compaction_of(offer.key[0])
        before = archive_attrs(path)
        same = before.get("identity") == offer.stored.identity
        if not (same and before.get("compaction") == declaration(how)):
            if before and not same:
                say(talk, f"{path} was declared otherwise and is replaced")
            _keep(offer.stored, how, path)
        done[offer.key] = _done(path)
    for name in dict.fromkeys(offer.key[0] for offer in offers):
        _refuse_too_large(name, done)
    return done


def _keep(stored: StoredRun, how: Compaction, path: Path) -> None:
    """Compacted; or as it is, if it was kept on another machine."""
    if not stored.kept:
        write_archive(compact(store.open(stored.path), how), path)
        return
    if archive_attrs(stored.path)["compaction"] != declaration(how):
        raise ValueError(
            f"{stored.path} was kept by a rankscope that declares another compaction; keep the run "
            "itself with this one"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, stored.path.read_bytes(), durable=False)


def _done(path: Path) -> Done:
    attrs = archive_attrs(path)
    return Done(
        identity=attrs["identity"],
        commit=attrs.get("commit", ""),
        device=attrs.get("device", ""),
        started=attrs.get("started", ""),
        seconds=round(float(attrs["wall_seconds"]), 1),
        speed=_speed(attrs),
        stride=attrs["compaction"]["stride"],
        sha256=digest(path),
        bytes=path.stat().st_size,
    )


def _speed(attrs: dict[str, Any]) -> str:
    """ "72,000 images/s", to three digits; "" of what has no speed."""
    if not attrs.get("speed"):
        return ""
    digits = float(f"{attrs['speed']:.3g}")
    return f"{digits:,.0f} {attrs['unit']}/s"


def _refuse_too_large(name: str, done: dict[Key, Done]) -> None:
    """While one seed is there, not when the last one comes."""
    experiment = load(name, "paper")
    largest = {
        run: max((each.bytes for key, each in done.items() if key[:2] == (name, run)), default=0)
        for run in experiment.runs
    }
    size = len(experiment.seeds) * sum(largest.values())
    if size > LIMIT:
        raise ValueError(
            f"all seeds of {name} will take {size / 1e6:.1f} MB of the {LIMIT / 1e6:.0f} MB they "
            "may; declare a larger stride or fewer bits in rankscope.lab.results.compaction"
        )
