"""Portions of a checkpoint, in the order in which they are measured; the next is read ahead."""

import math
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from torch import Tensor

from rankscope.checkpoints import Checkpoint, natural_order
from rankscope.matrices import Product, Reading, Views
from rankscope.matrices.source import CheckpointTensors
from rankscope.scanning.adapters import Change, changes_in

# Tensors are measured in portions of about this many bytes in memory, so that small ones share the
# cores. The next portion is read meanwhile if it is no larger; a large tensor waits its turn.
PORTION = 2**28
CHANGE = 4  # bytes of a number of a change since a base
READERS = 2  # tensors that are read at once, so that the disk has the next request already


@dataclass(frozen=True)
class Portion:
    """Tensors that are in memory together, and what is read from them.

    products: changes that an adapter makes, by the name of the left factor.
    refused: sentences on tensors that could not be read.
    """

    tensors: dict[str, Tensor]
    readings: tuple[Reading, ...]
    products: dict[str, Product] = field(default_factory=dict)
    refused: tuple[str, ...] = ()


def needs_of(checkpoint: Checkpoint, *, with_base: bool) -> dict[str, int]:
    """Return the bytes that a measurement holds in memory, by tensor name without wrappers.

    These are the tensor's, dequantised, and those of its change if there is a base. The change that
    an adapter makes is never multiplied out, so its factors count.
    """
    within = CheckpointTensors.within(checkpoint)
    needs = {}
    for name, stored in within.stored().items():
        if isinstance(checkpoint.loaders.get(within.names[name]), Change):
            needs[name] = stored.bytes
        else:
            change = CHANGE * math.prod(stored.shape) if with_base else 0
            needs[name] = stored.bytes_in_memory + change
    return needs


def planned(matrices: Views, needs: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return the names of the tensors of each portion, in natural order.

    The order is that of the names and not that of the file, so that two formats of one model are
    measured in the same portions.
    """
    names = sorted({r.parameter for r in matrices.readings.values()}, key=natural_order)
    portions: list[list[str]] = []
    room = 0
    for name in names:
        size = needs.get(name, 0)
        if not portions or size > room:
            portions.append([])
            room = PORTION
        portions[-1].append(name)
        room -= size
    return [tuple(portion) for portion in portions]


def portions(
    matrices: Views, plan: Sequence[tuple[str, ...]], needs: Mapping[str, int]
) -> Iterator[Portion]:
    """Yield the portions of the plan; the next is read while the caller measures this one."""
    small = [sum(needs.get(name, 0) for name in names) <= PORTION for names in plan]
    yield from _ahead([partial(read_portion, matrices, names) for names in plan], small)


def read_portion(matrices: Views, names: Sequence[str]) -> Portion:
    """Read the tensors of these names, and name those that cannot be read."""
    tensors: dict[str, Tensor] = {}
    products: dict[str, Product] = {}
    refused: list[str] = []
    changes = changes_in(matrices)

    def read(name: str) -> None:
        if name in changes:
            products[name] = changes[name].product()
        else:
            tensors[name] = matrices.tensors[name]

    with ThreadPoolExecutor(READERS, thread_name_prefix="rankscope-reader") as readers:
        futures = [readers.submit(read, name) for name in names]
    for future in futures:
        try:
            future.result()
        except ValueError as refusal:
            refused.append(str(refusal))
    places = {name: place for place, name in enumerate(names)}
    parameters = tensors.keys() | products.keys()
    readings = (
        reading for reading in matrices.readings.values() if reading.parameter in parameters
    )
    in_order = sorted(readings, key=lambda reading: places[reading.parameter])
    tensors = {name: tensors[name] for name in names if name in tensors}
    return Portion(tensors, tuple(in_order), products, tuple(refused))


def _ahead(reads: list[Callable[[], Portion]], small: list[bool]) -> Iterator[Portion]:
    """Yield the result of each read; a small one begins while the one before is in use."""
    results: queue.Queue[Portion | BaseException] = queue.Queue()
    allowed = threading.Semaphore(0)
    stopped = threading.Event()

    def work() -> None:
        for index in count():
            allowed.acquire()
            if stopped.is_set() or index >= len(reads):
                return
            try:
                results.put(reads[index]())
            except BaseException as failure:
                results.put(failure)
                return

    thread = threading.Thread(target=work, name="rankscope-reader", daemon=True)
    thread.start()
    try:
        for index in range(len(reads)):
            if index == 0 or not small[index]:
                allowed.release()
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            if index + 1 < len(reads) and small[index + 1]:
                allowed.release()
            yield result
            del result
    finally:
        stopped.set()
        allowed.release()
        thread.join()
