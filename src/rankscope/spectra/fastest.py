"""The fastest engine for each processor.

torch computes with Intel's MKL, which is slow on processors of other makers. The choice follows the
maker, not a clock, so that the same machine always gives the same bits.
"""

import threading
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.spectra.engine import Engine, Torch
from rankscope.spectra.openblas import load_openblas

SIDE = 256  # from which OpenBLAS computes eigenvalues faster than MKL does


@dataclass(frozen=True)
class OnIntel:
    """Engine for processors of Intel, where each library is faster at something.

    On a Xeon with AVX-512, MKL's CPU time divided by OpenBLAS's is 1.05 to 1.2 for Gram matrices.
    For eigenvalues it is 0.8 at a side of 100, 1.0 at 256 and 1.1 at 768. With vectors it is 0.7 at
    64 and 0.93 at 768.
    """

    openblas: Engine
    mkl: Engine

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]:
        return self.openblas.gram(W)

    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]:
        return (self.openblas if G.shape[-1] >= SIDE else self.mkl).eigenvalues(G)

    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
        return self.mkl.eigenvectors(G)


def engine_of(x: Tensor) -> Engine:
    """Return the engine for tensors like x in this thread.

    A thread that may use several cores computes with torch, which uses them all.
    """
    alone = x.device.type == "cpu" and torch.get_num_threads() == 1
    return _of_cpu() if alone else Torch()


_choosing = threading.Lock()


def _of_cpu() -> Engine:
    with _choosing:
        return _chosen()


@cache
def _chosen() -> Engine:
    processor = _processor()
    openblas = load_openblas(processor) if torch.backends.mkl.is_available() else None
    if openblas is None:
        return Torch()
    return OnIntel(openblas, Torch()) if "GenuineIntel" in processor else openblas


def _processor() -> set[str]:
    """Return the words that describe the processor; none where the system does not say."""
    try:
        with open("/proc/cpuinfo") as lines:
            return set(lines.read().split("\n\n")[0].split())
    except OSError:
        return set()
