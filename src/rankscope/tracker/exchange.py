"""Messages between the workers of several ranks, through the store of their process group.

A worker must never take part in a collective: training's own would meet it in another order. The
store is that by which the ranks found each other. Messages travel in chunks, few of which exist at
a time, and nobody waits for ever: a rank that ends says why, and silence has its limit.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rankscope.tracker import distributed

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

CHUNK = 2**20  # bytes; stores refuse some MiB
MOST_CHUNKS = 64  # of one sender that wait to be read
MORE, LAST = b"+", b"."


class Exchange:
    """Sends and receives messages, those of one rank in the order in which it sent them."""

    def __init__(self, store: "Store", *, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self._store = store
        self._sent: Counter[int] = Counter()  # chunks, by receiver
        self._received: Counter[int] = Counter()  # chunks, by sender

    @property
    def others(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in range(self.ranks) if rank != self.rank]

    def send(self, receiver: int, message: bytes | memoryview) -> None:
        """Send a message; wait while too much of what was sent is not read."""
        for start in range(0, max(1, len(message)), CHUNK):
            number = self._sent[receiver]
            if number >= MOST_CHUNKS:
                unread = _key(self.rank, receiver, number - MOST_CHUNKS)
                self._wait(receiver, lambda key=unread: not self._store.check([key]))  # type: ignore[misc]
            kind = MORE if start + CHUNK < len(message) else LAST
            chunk = kind + bytes(message[start : start + CHUNK])
            self._store.set(_key(self.rank, receiver, number), chunk)  # type: ignore[arg-type]
            self._sent[receiver] += 1

    def chunks(self, sender: int, *, longer: float = 0.0) -> Iterator[bytes]:
        """Yield the next message in chunks, each once it is there.

        longer: seconds for which to be patient beyond the usual.
        """
        kind = MORE
        while kind == MORE:
            key = _key(sender, self.rank, self._received[sender])
            self._wait(sender, lambda key=key: self._store.check([key]), longer=longer)  # type: ignore[misc]
            chunk = self._store.get(key)
            self._store.delete_key(key)
            self._received[sender] += 1
            kind = chunk[:1]
            yield chunk[1:]

    def receive(self, sender: int, *, longer: float = 0.0) -> bytes:
        """Return the next message; RuntimeError if its sender has ended or is silent too long."""
        return b"".join(self.chunks(sender, longer=longer))

    def end(self, reason: str) -> None:
        """Tell the others that no message follows, and why; the first reason counts."""
        with contextlib.suppress(RuntimeError):  # the store is gone, and its rank with it
            self._store.compare_set(f"{self.rank}/end", "", reason)

    def _wait(self, other: int, done: Callable[[], bool], *, longer: float = 0.0) -> None:
        patience = distributed.PATIENCE + longer
        deadline, pause = time.monotonic() + patience, 0.001
        while not done():
            if self._store.check([f"{other}/end"]):
                if done():  # just before it ended
                    return
                raise RuntimeError(f"rank {other} {self._store.get(f'{other}/end').decode()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"rank {other} has not measured its share: it was silent for {patience:.3g} "
                    "seconds"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.01)


def _key(sender: int, receiver: int, number: int) -> str:
    return f"{sender}>{receiver}/{number}"
