"""Measurement of the matrices of one checkpoint: spectra, norms, changes since a base."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.lora.factors import core
from rankscope.matrices import Product, Reading, Views, difference
from rankscope.matrices.source import CheckpointTensors
from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.portions import Portion
from rankscope.spectra import decompose, decompose_leading
from rankscope.spectra.workers import spread

# Prefixes that training and adapter libraries put before the names of one model.
PREFIXES = re.compile(r"^(?:_orig_mod\.|module\.|base_model\.model\.|model\.|transformer\.)+")
# Entries that are turned into float64 at a time: on the CPU as many as stay in its cache.
BLOCK, BLOCK_ELSEWHERE = 2**16, 2**24
NOT_IN_BASE = "not in the base"
DIFFERENCE = 2**22  # entries whose difference is formed at a time


@dataclass(frozen=True)
class Options:
    """Settings of a measurement.

    leading: number of singular values; 0 for norms only, None for all.
    """

    device: torch.device
    leading: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Measured:
    """Matrices of one portion, and sentences on tensors that could not be read."""

    matrices: tuple[MatrixScan, ...]
    refused: tuple[str, ...]


class Base:
    """Weights that changes are measured from, found by name with and without known prefixes."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self._plain = {PREFIXES.sub("", name): name for name in views.readings}

    def matrix(self, reading: Reading) -> Tensor | None:
        """Return the matrix that corresponds to a reading, or None."""
        name = reading.name
        if name not in self.views.readings:
            name = self._plain.get(PREFIXES.sub("", name), "")
        return self.views[name].W if name else None

    def release(self) -> None:
        """Forget the tensor that was read last."""
        stored = self.views.tensors.stored
        if isinstance(stored, CheckpointTensors):
            stored.forget()


def measure(portion: Portion, options: Options, base: Base | None) -> Measured:
    """Return the scan of each matrix in a portion, without a change where the base has none."""
    readings = [r for r in portion.readings if r.parameter in portion.tensors]
    weights = {
        reading.name: reading.view(portion.tensors[reading.parameter]).W.to(options.device)
        for reading in readings
    }
    changes, notes, refused = _changes(readings, weights, options.device, base)
    norms, change_norms = _norms(weights, options), _norms(changes, options)
    spectra = _spectra(weights, norms, options)
    change_spectra = _spectra(changes, change_norms, options)
    matrices = tuple(
        MatrixScan(
            name=reading.name,
            kind=reading.kind,
            m=reading.m,
            n=reading.n,
            dtype=str(portion.tensors[reading.parameter].dtype).removeprefix("torch."),
            S=spectra[reading.name],
            norm=norms[reading.name],
            change=change_spectra.get(reading.name),
            change_norm=change_norms.get(reading.name, np.nan),
            note=notes.get(reading.name, ""),
            compared=base is not None,
        )
        for reading in readings
    )
    products = (
        _of_product(reading, portion.products[reading.parameter], options)
        for reading in portion.readings
        if reading.parameter in portion.products
    )
    return Measured((*matrices, *products), (*portion.refused, *refused))


def _changes(
    readings: Sequence[Reading],
    weights: Mapping[str, Tensor],
    device: torch.device,
    base: Base | None,
) -> tuple[dict[str, Tensor], dict[str, str], list[str]]:
    """Return changes and notes by matrix, and sentences on what could not be read of the base."""
    changes: dict[str, Tensor] = {}
    notes: dict[str, str] = {}
    refused: list[str] = []
    if base is None:
        return changes, notes, refused
    for reading in readings:
        try:
            W0 = base.matrix(reading)
        except ValueError as refusal:
            notes[reading.name] = "cannot be read in the base"
            refused.append(str(refusal))
            continue
        if W0 is None:
            notes[reading.name] = NOT_IN_BASE
            continue
        change, notes[reading.name] = shared_change(weights[reading.name], W0.to(device))
        if change is not None:
            changes[reading.name] = change
    base.release()
    return changes, notes, refused


def _of_product(reading: Reading, product: Product, options: Options) -> MatrixScan:
    """Return the scan of an adapter's change, exact from its factors; the other values are 0."""
    S = np.zeros(min(reading.m, reading.n))
    values = core(product).S.numpy()[: len(S)]
    S[: len(values)] = values
    return MatrixScan(
        name=reading.name,
        kind=reading.kind,
        m=reading.m,
        n=reading.n,
        dtype=str(product.left.dtype).removeprefix("torch."),
        S=S[: options.leading],
        norm=float(np.sqrt((values**2).sum())),
    )


def shared_change(W: Tensor, W0: Tensor) -> tuple[Tensor | None, str]:
    """Return W - W0 and a note; of a resized vocabulary, the change of the tokens of both."""
    note = ""
    if W.shape != W0.shape:
        axes = [axis for axis in (0, 1) if W.shape[axis] != W0.shape[axis]]
        if len(axes) != 1:
            shapes = (" x ".join(map(str, shape)) for shape in (W.shape, W0.shape))
            return None, "{} here and {} in the base".format(*shapes)
        shared = min(W.shape[axes[0]], W0.shape[axes[0]])
        W, W0 = W.narrow(axes[0], 0, shared), W0.narrow(axes[0], 0, shared)
        note = f"change of the first {shared} {('rows', 'columns')[axes[0]]}, which both have"
    return _difference_by_rows(W, W0), note


def _difference_by_rows(W: Tensor, W0: Tensor) -> Tensor:
    """Return W - W0, with room for a few rows beside the result and not for copies of both."""
    step = max(1, DIFFERENCE // max(1, W.shape[1]))
    rows = zip(W.split(step), W0.split(step), strict=True)
    first = difference(W[:0], W0[:0])
    change = torch.empty(W.shape, dtype=first.dtype, device=first.device)
    for part, (after, before) in zip(change.split(step), rows, strict=True):
        part.copy_(difference(after, before))
    return change


def _spectra(
    matrices: Mapping[str, Tensor], norms: Mapping[str, float], options: Options
) -> dict[str, np.ndarray]:
    if options.leading == 0:
        return dict.fromkeys(matrices, np.empty(0))
    zero = {name for name in matrices if norms[name] == 0}
    jobs = {name: W for name, W in matrices.items() if 0 < norms[name] < np.inf}
    lengths = {name: min(W.shape) for name, W in matrices.items()}
    spectra = {name: np.zeros(lengths[name]) for name in zero}
    spectra |= {name: S.numpy(force=True) for name, S in _values(jobs, options).items()}
    return {
        name: spectra.get(name, np.full(lengths[name], np.nan))[: options.leading]
        for name in matrices
    }


def _values(matrices: Mapping[str, Tensor], options: Options) -> dict[str, Tensor]:
    if options.leading is None:
        svds = decompose(matrices, threads=options.threads, on_failure=_named_elsewhere)
        return {name: svd.S for name, svd in svds.items()}
    parts = decompose_leading(
        matrices, options.leading, threads=options.threads, on_failure=_named_elsewhere
    )
    return {name: part.S for name, part in parts.items()}


def _named_elsewhere(names: Sequence[str]) -> None:
    """Ignore matrices that are not finite; the scan names them."""


def _norms(matrices: Mapping[str, Tensor], options: Options) -> dict[str, float]:
    """Return Frobenius norms; each thread takes a matrix, as cores gain little from sharing one."""
    threads = options.threads or torch.get_num_threads()
    norms = spread(frobenius, list(matrices.values()), cost=Tensor.numel, threads=threads)
    return dict(zip(matrices, norms, strict=True))


def frobenius(W: Tensor) -> float:
    """Return the Frobenius norm, summed in float64 a block at a time; NaN or inf if W has any."""
    if not W.numel():
        return 0.0  # whose other axis may have any length
    if W.stride(0) < W.stride(1):
        W = W.mT  # blocks of consecutive memory
    rows = W.reshape(-1, 1) if W.is_contiguous() else W
    block = BLOCK if W.device.type == "cpu" else BLOCK_ELSEWHERE
    room = torch.empty(max(block, rows.shape[1]), dtype=torch.float64, device=W.device)
    squares = []
    for part in torch.split(rows, max(1, block // max(1, rows.shape[1]))):
        numbers = room[: part.numel()]
        numbers.view(part.shape).copy_(part)
        squares.append(numbers.dot(numbers))
    return float(torch.stack(squares).sum().sqrt())


def sizes_of(checkpoint: Checkpoint) -> dict[str, int]:
    """Return the bytes on disk by tensor name without wrappers."""
    stored = CheckpointTensors.within(checkpoint).stored()
    return {name: tensor.bytes for name, tensor in stored.items()}
