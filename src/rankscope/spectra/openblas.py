"""A second instance of the OpenBLAS that NumPy's wheels ship, on one core of the CPU.

It is loaded from memory and has one thread, so that neither NumPy's threads nor torch's change.
"""

import ctypes
import os
from dataclasses import dataclass
from glob import glob
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from rankscope.environment import environment
from rankscope.spectra.engine import Torch, panels

# Eigenvalues are right to this share of the largest.
RIGHT = 1e-13
BLOCK = 16  # columns that dsytrd reduces at a time; by default 32, which takes 1.04 times as long
AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True)
class OpenBlas:
    """Engine of an OpenBLAS library with 64-bit integers, on one core of the CPU."""

    library: ctypes.CDLL

    def gram(self, W: Num[Tensor, "batch m n"]) -> Float[Tensor, "batch m m"]:
        """Return the lower half of W W^T in float64, which solvers read."""
        batch, m, _ = W.shape
        G = torch.zeros(batch, m, m, dtype=torch.float64, device="cpu")
        for index in range(batch):
            for D in panels(W[index]):
                # Row by row, D is D^T for Fortran, and a lower half is an upper one.
                by_rows, width = D.is_contiguous(), D.shape[1]
                order, length = (b"T", width) if by_rows else (b"N", m)
                _call(
                    self.library.scipy_dsyrk_64_,
                    *(b"U", order, m, width, 1.0, D, max(1, length), 1.0, G[index], max(1, m)),
                )
        return G

    def eigenvalues(self, G: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m"]:
        """Return the eigenvalues, ascending, by the two steps of dsyevd.

        Before them dsyevd looks for the largest entry, which takes a twentieth of its time.
        """
        G = G.clone(memory_format=torch.contiguous_format)
        batch, m, _ = G.shape
        values, off_diagonal, factors = (G.new_empty(batch, m) for _ in range(3))
        work, failure = G.new_empty(BLOCK * m), G.new_zeros(1, dtype=torch.int64)
        for index in range(batch if m else 0):
            tridiagonal = values[index], off_diagonal[index]
            _call(
                self.library.scipy_dsytrd_64_,
                *(b"U", m, G[index], m, *tridiagonal, factors[index], work, len(work), failure),
            )
            _call(self.library.scipy_dsterf_64_, m, *tridiagonal, failure)
            _require("dsterf", failure)
        return values

    def eigenvectors(
        self, G: Float[Tensor, "batch m m"]
    ) -> tuple[Float[Tensor, "batch m"], Float[Tensor, "batch m m"]]:
        """Return the eigenvalues, ascending, and their vectors as columns."""
        G = G.clone(memory_format=torch.contiguous_format)
        batch, m, _ = G.shape
        values, work = G.new_empty(batch, m), G.new_empty(1 + 6 * m + 2 * m * m)
        integers, failure = (G.new_zeros(size, dtype=torch.int64) for size in (3 + 5 * m, 1))
        for index in range(batch if m else 0):
            _call(
                self.library.scipy_dsyevd_64_,
                *(b"V", b"U", m, G[index], m, values[index]),
                *(work, len(work), integers, len(integers), failure),
            )
            _require("dsyevd", failure)
        return values, G.mT


def _require(name: str, failure: Tensor) -> None:
    if failure.item():
        raise LinAlgError(f"{name}: the algorithm failed ({failure.item()})")


def _call(function: Any, *arguments: bytes | int | float | Tensor) -> None:
    """Call a Fortran routine, which takes all by reference, while other Python threads run."""
    references: list[Any] = []
    for argument in arguments:
        match argument:
            case Tensor():
                references.append(ctypes.c_void_p(argument.data_ptr()))
            case bytes():
                references.append(argument)
            case int():
                references.append(ctypes.byref(ctypes.c_int64(argument)))
            case float():
                references.append(ctypes.byref(ctypes.c_double(argument)))
    function(*references)


def load_openblas(processor: set[str]) -> OpenBlas | None:
    """Load a second instance of NumPy's OpenBLAS, or None if there is none that computes right."""
    files = glob(os.path.join(os.path.dirname(np.__file__), "..", "numpy.libs", "*openblas64_*"))
    if len(files) != 1 or not hasattr(os, "memfd_create"):
        return None
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    if processor >= AVX512:  # which it does not recognise on processors newer than itself
        settings["OPENBLAS_CORETYPE"] = "SkylakeX"
    try:
        with environment(settings):
            engine = OpenBlas(ctypes.CDLL(_copy_in_memory(files[0]), os.RTLD_DEEPBIND))
        return engine if _is_right(engine) else None
    except (OSError, AttributeError):
        return None


def _copy_in_memory(path: str) -> str:
    """Return a path to a copy, since a file that is loaded already is not loaded again."""
    descriptor = os.memfd_create("rankscope-openblas")
    with open(path, "rb") as source:
        size = os.fstat(source.fileno()).st_size
        while size > os.lseek(descriptor, 0, os.SEEK_CUR):
            os.sendfile(descriptor, source.fileno(), None, size)
    return f"/proc/self/fd/{descriptor}"


def _is_right(engine: OpenBlas) -> bool:
    """Compare with torch on one matrix whose spectrum spans three decades."""
    generator = torch.Generator("cpu").manual_seed(0)
    W = torch.randn(1, 70, 200, generator=generator, device="cpu")
    W *= torch.logspace(0, -3, 70, device="cpu")[:, None]
    exact = Torch().eigenvalues(Torch().gram(W))
    values, vectors = engine.eigenvectors(engine.gram(W))
    without_vectors = engine.eigenvalues(engine.gram(W))
    error = max((values - exact).abs().max(), (without_vectors - exact).abs().max())
    image = Torch().gram(W).tril()
    symmetric = image + image.mT - torch.diag_embed(image.diagonal(dim1=-2, dim2=-1))
    residual = (symmetric @ vectors - vectors * values[:, None]).abs().max()
    return bool(max(error, residual) <= RIGHT * exact.max())
