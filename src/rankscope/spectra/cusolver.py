"""Eigenvalues of stacks on a GPU by cuSOLVER's batched solver.

torch 2.10 and 2.11 ship this solver and decompose one matrix after another instead. It is called
here on the library that torch has loaded.
"""

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.spectra.engine import Torch
from rankscope.spectra.guards import is_right

Resource = TypeVar("Resource")

# Values of cuSOLVER's enumerations.
VALUES, VECTORS, LOWER, REAL64 = 0, 1, 0, 1
MATRICES = 1 << 14  # in one call; CUDA 13.0 refuses more than about twice as many
WORKSPACE = 3 << 29  # bytes of one call, unless a single matrix needs more


class PerThread(Generic[Resource]):
    """Resources by device, one for each thread; a new thread takes over that of one that ended."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Resource]] = defaultdict(list)
        self._threads = threading.local()

    def get(self, device: int, create: Callable[[], Resource]) -> Resource:
        """Return the calling thread's resource for a device."""
        held: _Held[Resource]
        held = self._threads.__dict__.setdefault("held", _Held(self._free))
        if device not in held.by_device:
            try:
                held.by_device[device] = self._free[device].pop()
            except IndexError:
                held.by_device[device] = create()
        return held.by_device[device]


class _Held(Generic[Resource]):
    """Resources of one thread, which are free when it has ended."""

    def __init__(self, free: defaultdict[int, list[Resource]]) -> None:
        self.by_device: dict[int, Resource] = {}
        self._free = free

    def __del__(self) -> None:
        for device, resource in self.by_device.items():
            self._free[device].append(resource)


Handle = tuple[ctypes.c_void_p, ctypes.c_void_p]  # and its parameters


@dataclass(frozen=True)
class CuSolver:
    """Engine of cuSOLVER, on the stream that torch uses; it overwrites what it decomposes."""

    library: ctypes.CDLL
    handles: PerThread[Handle] = field(default_factory=PerThread)

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]:
        """Return W W^T in float64."""
        return Torch().gram(W)

    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]:
        """Return the eigenvalues, ascending; NaN where the solver failed."""
        return self._solve(VALUES, G)[0]

    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
        """Return the eigenvalues, ascending, and their vectors as columns."""
        values, vectors = self._solve(VECTORS, G)
        return values, vectors.mT

    def _solve(self, job: int, G: Tensor) -> tuple[Tensor, Tensor]:
        """Return eigenvalues and what the solver writes in the place of G: vectors as rows."""
        G = G.contiguous()
        batch, m, _ = G.shape
        values = G.new_empty(batch, m)
        if G.numel() == 0:
            return values, G
        failed = torch.zeros(batch, dtype=torch.int32, device=G.device)
        with torch.cuda.device(G.device):
            call = _Call(self.library, self._handle(), job, m)
            count = min(batch, MATRICES)
            while count > 1 and call.workspace(G, values, count)[0] > WORKSPACE:
                count = (count + 1) // 2
            for parts in zip(*(x.split(count) for x in (G, values, failed)), strict=True):
                call.solve(*parts)
        return values.masked_fill_(failed.ne(0)[:, None], torch.nan), G

    def _handle(self) -> Handle:
        """Return the handle of this thread and device, for the current stream."""
        handle, parameters = self.handles.get(torch.cuda.current_device(), self._created)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _check("cusolverDnSetStream", self.library.cusolverDnSetStream(handle, stream))
        return handle, parameters

    def _created(self) -> Handle:
        handle, parameters = ctypes.c_void_p(), ctypes.c_void_p()
        _check("cusolverDnCreate", self.library.cusolverDnCreate(ctypes.byref(handle)))
        create = self.library.cusolverDnCreateParams
        _check("cusolverDnCreateParams", create(ctypes.byref(parameters)))
        return handle, parameters


@dataclass(frozen=True)
class _Call:
    """Calls of the solver for matrices of m rows."""

    library: ctypes.CDLL
    handle: Handle
    job: int
    m: int

    def workspace(self, G: Tensor, values: Tensor, count: int) -> tuple[int, int]:
        """Return the bytes that `count` matrices need on the device and on the host."""
        on_device, on_host = ctypes.c_size_t(), ctypes.c_size_t()
        status = self.library.cusolverDnXsyevBatched_bufferSize(
            *self._arguments(G, values),
            *(ctypes.byref(on_device), ctypes.byref(on_host), ctypes.c_int64(count)),
        )
        _check("cusolverDnXsyevBatched_bufferSize", status)
        return on_device.value, on_host.value

    def solve(self, G: Tensor, values: Tensor, failed: Tensor) -> None:
        on_device, on_host = self.workspace(G, values, len(G))
        device_memory = torch.empty(max(1, on_device), dtype=torch.uint8, device=G.device)
        host_memory = torch.empty(max(1, on_host), dtype=torch.uint8, device="cpu")
        status = self.library.cusolverDnXsyevBatched(
            *self._arguments(G, values),
            *(_pointer(device_memory), ctypes.c_size_t(on_device)),
            *(_pointer(host_memory), ctypes.c_size_t(on_host)),
            *(_pointer(failed), ctypes.c_int64(len(G))),
        )
        _check("cusolverDnXsyevBatched", status)

    def _arguments(self, G: Tensor, values: Tensor) -> tuple[object, ...]:
        size, real = ctypes.c_int64(self.m), ctypes.c_int(REAL64)
        return (
            *self.handle,
            *(ctypes.c_int(self.job), ctypes.c_int(LOWER), size),
            *(real, _pointer(G), size),
            *(real, _pointer(values), real),
        )


def _pointer(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def _check(name: str, status: int) -> None:
    if status:
        raise LinAlgError(f"{name}: cuSOLVER answered with status {status}")


_loading = threading.Lock()


def engine_on(device: torch.device) -> CuSolver | Torch:
    """Return the engine for tensors of a device; torch's own where no batched solver works."""
    if device.type != "cuda" or torch.version.cuda is None:  # AMD's GPUs are "cuda" too
        return Torch()
    with _loading:
        return _loaded()


@cache
def _loaded() -> CuSolver | Torch:
    torch.linalg.eigvalsh(torch.eye(2, device="cuda"))  # torch loads the library at first use
    try:
        engine = CuSolver(ctypes.CDLL(_path_in_memory("libcusolver.so")))
        return engine if is_right(engine, "cuda") else Torch()
    except (OSError, AttributeError, StopIteration, LinAlgError):
        return Torch()


def _path_in_memory(name: str) -> str:
    """Return the path of a library that this process has loaded."""
    with open("/proc/self/maps") as lines:
        return next(path for line in lines if name in (path := line.split(maxsplit=5)[-1].strip()))
