"""Measuring in shares: the writing rank collects what the others contribute."""

import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankscope import snapshot
from rankscope.checkpoints.tensor_file import Entry, Source, in_file_order, source_of
from rankscope.tracker.buffers import Buffer, Handoff
from rankscope.tracker.cost import Cost, bytes_of
from rankscope.tracker.exchange import Exchange
from rankscope.tracker.measurers import Measurer
from rankscope.tracker.merging import Merging
from rankscope.tracker.sharing import Sharing
from rankscope.tracker.streams import OwnStream

WRITER = 0
# What the writer asks for with the first snapshot: whether it is the reference of changes.
KEEP, STAY = b"keep", b"stay"


class CollectingMeasurer:
    """Measures the writer's share, and returns it with those of all other ranks."""

    def __init__(
        self, measurer: Measurer, plan: snapshot.Plan, sharing: Sharing, *, from_init: bool
    ) -> None:
        self._measurer = measurer
        self._plan = plan
        self._sharing = sharing
        self._asked = not from_init

    @property
    def reference(self) -> Mapping[str, Tensor] | None:
        """The weights from which changes of the writer's share are measured."""
        return self._measurer.reference

    def keep_reference(self, buffer: Buffer) -> None:
        """Measure changes from the weights in `buffer` from now on; other ranks do so too."""
        self._measurer.keep_reference(buffer.only(self._sharing.own.owned))
        self._ask(KEEP)

    def elsewhere(self) -> Sequence[Source]:
        """Return the reference of the other ranks, who have been asked to send it."""
        exchange = self._sharing.exchange
        return [_sent_by(rank, exchange) for rank in exchange.others]

    def measure(self, buffer: Buffer) -> snapshot.Snapshot:
        """Return the snapshot of the weights of all ranks."""
        self._ask(STAY)
        shares, exchange = self._sharing.shares, self._sharing.exchange
        began = time.monotonic()
        own = self._measurer.measure(buffer)
        longer = time.monotonic() - began  # the others may take as long
        rows, failed, redone = Merging(self._plan), dict.fromkeys(own.failed), own.redone
        rows.add(own.values, self._sharing.own.plan, owned=self._sharing.own.owned)
        for rank in exchange.others:
            part = unpacked(exchange.receive(rank, longer=longer))
            rows.add(part.values, shares[rank].plan, owned=shares[rank].owned)
            failed |= dict.fromkeys(part.failed)
            redone += part.redone
        return snapshot.Snapshot(rows.values, tuple(failed), {}, redone)

    def close(self) -> None:
        self._measurer.close()
        self._sharing.exchange.end("has closed its tracker")

    def _ask(self, request: bytes) -> None:
        if not self._asked:
            self._asked = True
            for rank in self._sharing.exchange.others:
                self._sharing.exchange.send(rank, request)


class Contributor:
    """Takes the place of the recorder on ranks that do not write: measures and sends."""

    committed: int | None = None
    last_step: int | None = None

    def __init__(
        self, measurer: Measurer, sharing: Sharing, *, from_init: bool, buffers: int
    ) -> None:
        self._measurer = measurer
        self._sharing = sharing
        self._waits_for_request = from_init
        self._buffers = buffers
        self._stream = OwnStream()
        self.cost = Cost()

    def record(
        self,
        step: int,
        buffer: Buffer,
        scalars: Handoff,
        *,
        wait_seconds: float,
        complete: bool = True,
        collected: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Measure this rank's share of the copies of `step`, and send it to the writer."""
        began = time.perf_counter()
        try:
            with torch.no_grad(), self._stream.of(buffer):
                buffer.wait_filled()
                self._serve_request(buffer)
                part = self._measurer.measure(buffer)
                buffer.mark_measured()
            self._sharing.exchange.send(WRITER, packed(part))
        except BaseException as failure:
            reason = f"could not measure its share ({type(failure).__name__}: {failure})"
            self._sharing.exchange.end(reason)
            raise
        self.cost = self.cost.with_snapshot(
            lost=wait_seconds + buffer.copy_seconds,
            measuring=time.perf_counter() - began,
            bytes=self._buffers * bytes_of(buffer.tensors)
            + bytes_of(self._measurer.reference or {}),
        )

    def _serve_request(self, buffer: Buffer) -> None:
        """Keep the copies as reference and send them, if the writer asks for it."""
        if not self._waits_for_request:
            return
        self._waits_for_request = False
        exchange = self._sharing.exchange
        if exchange.receive(WRITER) == STAY:
            if self._measurer.reference is None:
                raise ValueError("this rank cannot read reference.safetensors of the run")
            return
        own = buffer.only(self._sharing.own.owned)
        self._measurer.keep_reference(own)
        source = source_of(own.tensors)
        exchange.send(WRITER, json.dumps(source.entries).encode())
        for name in in_file_order(source.entries):
            for chunk in source.read(name):
                exchange.send(WRITER, chunk)

    def record_rows(self, steps: Sequence[int], scalars: Handoff) -> None:
        """Do nothing: the writer has the scalars of every step too."""

    def note(self, attrs: Mapping[str, object]) -> None:
        """Do nothing: the writer notes what becomes of the run."""

    def note_memory(self) -> None:
        """Do nothing: the run tells of the writer's memory."""

    def new_failures(self) -> str:
        """Return "": the writer learns of failures with the values, and tells of them."""
        return ""

    def close(self) -> None:
        self._measurer.close()
        self._sharing.exchange.end("has closed its tracker")


def packed(part: snapshot.Snapshot) -> bytes:
    """Return stored values and names of failures as bytes; directions stay behind."""
    file = io.BytesIO()
    names = {name: np.array(getattr(part, name), dtype=str) for name in ("failed", "redone")}
    np.savez(file, allow_pickle=False, **names, **part.values)
    return file.getvalue()


def unpacked(message: bytes) -> snapshot.Snapshot:
    """Return what `packed` has packed."""
    with np.load(io.BytesIO(message), allow_pickle=False) as arrays:
        values = {name: arrays[name] for name in arrays.files}
    failed, redone = (tuple(map(str, values.pop(name))) for name in ("failed", "redone"))
    return snapshot.Snapshot(values, failed, {}, redone)


def _sent_by(rank: int, exchange: Exchange) -> Source:
    """Return the reference of another rank as a source; it is sent in the order of a file."""
    sent = json.loads(exchange.receive(rank))
    entries = {
        name: Entry(dtype, tuple(shape), size) for name, (dtype, shape, size) in sent.items()
    }

    def read(name: str) -> Iterable[bytes]:
        return exchange.chunks(rank)

    return Source(entries, read)
