"""Agreement of the ranks on who measures what; see `shares` for the division itself."""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist
from torch import nn

from rankscope import snapshot, store
from rankscope.matrices import named_tensors
from rankscope.measures import Measure
from rankscope.store.files import ROOT
from rankscope.tracker.distributed import is_sharded, is_writer, prefixed, several
from rankscope.tracker.exchange import Exchange
from rankscope.tracker.gauging import reduced
from rankscope.tracker.notices import Notices
from rankscope.tracker.probe import Probe
from rankscope.tracker.reference import Reference
from rankscope.tracker.shares import Share, divided
from rankscope.tracker.state import State

RANKS = "ranks"  # attribute of a run: how many there were, and which of them measured


@dataclass(frozen=True)
class Sharing:
    """The share of every rank, and how their workers reach each other."""

    shares: tuple[Share, ...]
    exchange: Exchange

    @property
    def own(self) -> Share:
        """Share of this rank."""
        return self.shares[self.exchange.rank]


class Wish(NamedTuple):
    """Whether a user passed share=True, and why one rank measures all; "" if ranks may share."""

    requested: bool
    objection: str


def wish_of(share: bool | None, probe: Probe | None, measures: Sequence[Measure]) -> Wish:
    """Return what `Tracker` was asked for; ValueError if it asks for shares that cannot be."""
    reason = ""
    if probe is not None:
        reason = "a probe needs all weights in one place"
    elif measures:
        reason = f"{measures[0].name} needs all weights in one place"
    if share and reason:
        raise ValueError(f"share=True: {reason}; leave out one of them")
    return Wish(bool(share), "share=False" if share is False else reason)


def act_together(model: nn.Module, measures: Sequence[Measure], share: bool | None) -> bool:
    """Tell whether the trackers of several ranks take each snapshot together."""
    return is_sharded(named_tensors(model)) or reduced(measures) or (several() and bool(share))


def agreed_sharing(
    wish: Wish,
    state: State,
    notices: Notices,
    plan: snapshot.Plan,
    path: Path,
    reference: Reference,
    *,
    resume: bool,
) -> tuple[Sharing | None, dict[str, str]]:
    """Return what ranks that act together have agreed on, and the run's attribute that says so."""
    if not state.sharded or state.stopped:
        return None, {}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    shares = divided(plan, ranks)
    objection = wish.objection or _objection(
        state, shares, path, reference=reference, resume=resume
    )
    if objection and wish.requested:
        notices.once("share", f"rank 0 measures all in spite of share=True: {objection}")
    if objection or state.stopped or state.store is None:
        return None, {RANKS: f"{ranks}, rank 0 measures all: {objection}"}
    exchange = Exchange(prefixed("shares", state.store), rank=rank, ranks=ranks)
    state.tell = exchange.end
    return Sharing(shares, exchange), {RANKS: f"{ranks}, each measures a share"}


def _objection(
    state: State, shares: Sequence[Share], path: Path, *, reference: Reference, resume: bool
) -> str:
    """Return why a rank cannot share, the same on every rank, or ""."""
    mark = _mark(shares)
    sees = int(resume and (path / ROOT).exists())
    gives = int(bool(sees) and is_writer() and _replaces_lost(path, reference))
    largest, smallest, seen, unseen, given = state.agree(mark, -mark, sees, -sees, gives)
    if largest != -smallest:
        return "the ranks have different matrices"
    if seen != -unseen:
        return "not every rank sees the files of the run that is resumed"
    return "the weights given as reference replace a lost file" if given else ""


def _mark(shares: Sequence[Share]) -> int:
    """Return a number that is equal where the shares are."""
    described = [
        (
            sorted(share.owned),
            [(reading.name, reading.m, reading.n) for reading in share.plan.readings],
            [product.name for product in share.plan.products],
            [pair.name for pair in share.plan.pairs],
            (share.plan.top, share.plan.leading),
        )
        for share in shares
    ]
    return int.from_bytes(hashlib.sha256(repr(described).encode()).digest()[:7])


def _replaces_lost(path: Path, reference: Reference) -> bool:
    """Tell whether a user gives the weights of the first snapshot to a run that has lost them."""
    if reference is None or reference == "init":
        return False
    with contextlib.suppress(Exception):  # what is wrong with the run is told when it is opened
        return bool(store.open(path).attrs["reference"] == "init")
    return False
