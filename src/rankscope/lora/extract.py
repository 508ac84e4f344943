"""Adapters out of fine-tuned models: B A of each change, written, read again and verified."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.lora.adapter import open_adapter
from rankscope.lora.changes import (
    MAX_RANK,
    Changes,
    decomposed,
    known_directions,
    open_changes,
)
from rankscope.lora.columns import approximation_columns, table_of
from rankscope.lora.contents import Contents, module_of
from rankscope.lora.placement import Placement, left_out, placement
from rankscope.lora.ranks import Rounding, choose_ranks, parameters
from rankscope.lora.resize import save_adapter
from rankscope.lora.spectrum import Spectrum
from rankscope.lora.writing import check_free
from rankscope.matrices.reading import Reading

Progress = Callable[[str, int, int], None]

ROWS = 1024  # of a change that are compared with B A at a time
FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Extraction:
    """An adapter that was written.

    table: one row per matrix: shape, norm of the change, directions at 50, 90 and 99% of its
        energy, noise floor, directions above it, rank, predicted error, and the error of the
        adapter read back from disk.
    saved: modules that are stored whole because they are no matrices with factors.
    left_out: tensors that changed and that the adapter does not hold, and why.
    spectra: spectrum of each change.
    parameters: number of parameters of all factors, which a budget limits.
    saved_parameters: number of parameters of what is stored whole, biases too.
    """

    path: Path
    table: pd.DataFrame
    saved: tuple[str, ...]
    left_out: Mapping[str, str]
    spectra: Mapping[str, Spectrum]
    parameters: int
    saved_parameters: int

    @property
    def error(self) -> float:
        """Relative error of all factored changes together, as read back."""
        squares = self.table["norm"] ** 2
        return float(((self.table["verified"] ** 2 * squares).sum() / squares.sum()) ** 0.5)


def extract(
    base: StrPath | Checkpoint,
    tuned: StrPath | Checkpoint,
    out: StrPath,
    *,
    energy: float | None = None,
    error: float | None = None,
    noise: bool = False,
    max_rank: int | None = MAX_RANK,
    budget: int | None = None,
    round_to: Rounding = 1,
    dtype: str = "float32",
    model: nn.Module | None = None,
    prefix: str = "",
    matrices_only: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Extraction:
    """Write tuned - base as a PEFT adapter, read it back, and return its verified errors.

    One weight is in memory at a time, beside the factors. `choose_ranks` explains how energy,
    error, noise, max_rank, budget and round_to give each matrix its rank.

    dtype: number format of the factors: float32, bfloat16 or float16.
    model: the model that loads the adapter. Its names are taken where it renames or ties tensors of
        its checkpoint. It may be on the meta device.
    prefix: put before the names of modules, if the model that loads the adapter has one more level
        than the checkpoints, such as "transformer.", and no model is given.
    matrices_only: leave out norms, embeddings and biases, which vLLM does not load.
    progress: called with a name, a number of finished matrices and their total.
    """
    target = Path(out).expanduser()
    check_free(target, overwrite=overwrite)
    if dtype not in FORMATS:
        raise ValueError(f"dtype is one of {', '.join(FORMATS)}, got {dtype!r}")
    changes = open_changes(base, tuned, model=model, prefix=prefix)
    places = placement(changes, matrices_only=matrices_only)
    spectra, factors = _factors(changes, places, max_rank, FORMATS[dtype], progress)
    if not spectra:
        raise ValueError("no matrix changed that an adapter could hold; compare other checkpoints")
    ranks = choose_ranks(
        spectra,
        energy=energy,
        error=error,
        noise=noise,
        max_rank=max_rank,
        budget=budget,
        round_to=round_to,
    )
    if noise and not any(spectrum.signal for spectrum in spectra.values()):
        raise ValueError(
            "no direction of any change is above the noise floor, so there is nothing to extract; "
            "leave out the noise rule to extract the noise"
        )
    contents = Contents(changes, places, ranks, factors)
    save_adapter(
        target, contents.layout, contents.read, config=contents.config(), overwrite=overwrite
    )
    return Extraction(
        target,
        _table(spectra, ranks, verified_errors(changes, places.factored, target)),
        contents.saved,
        left_out(changes, places),
        spectra,
        parameters(spectra, ranks),
        contents.saved_parameters,
    )


def _factors(
    changes: Changes,
    places: Placement,
    max_rank: int | None,
    dtype: torch.dtype,
    progress: Progress | None,
) -> tuple[dict[str, Spectrum], dict[str, tuple[Tensor, Tensor]]]:
    """Return spectrum and scaled directions (U sqrt(S), sqrt(S) Vh) of each change, in `dtype`.

    Spectra have more values than a small `max_rank`, which the noise floor needs.
    """
    spectra: dict[str, Spectrum] = {}
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    for number, reading in enumerate(places.factored):
        if progress is not None:
            progress(reading.name, number, len(places.factored))
        if not changes.changed(reading.parameter):
            continue
        before, after = changes.matrix(reading)
        leading = known_directions(max_rank)
        result = decomposed(before, after, kind=reading.kind, leading=leading)
        roots = result.spectrum.S[:max_rank].sqrt()
        U, Vh = result.U[:, :max_rank], result.Vh[:max_rank]
        spectra[reading.name] = result.spectrum
        factors[reading.name] = ((U * roots).to(dtype), (roots[:, None] * Vh).to(dtype))
    return spectra, factors


def verified_errors(
    changes: Changes, readings: tuple[Reading, ...], path: Path
) -> dict[str, float]:
    """Return |dW - B A|_F / |dW|_F of each matrix, with B A read from an adapter on disk."""
    adapter = open_adapter(path)
    errors = {}
    for reading in readings:
        if module_of(reading) in adapter.pairs:
            before, after = changes.matrix(reading)
            product = adapter.product(module_of(reading))
            errors[reading.name] = _error(before, after, product.left, product.right)
    return errors


def _error(before: Tensor, after: Tensor, left: Tensor, right: Tensor) -> float:
    missed, total = 0.0, 0.0
    for start in range(0, before.shape[0], ROWS):
        rows = slice(start, start + ROWS)
        dW = after[rows].double() - before[rows].double()
        missed += float((dW - left[rows] @ right.mT).square().sum())
        total += float(dW.square().sum())
    return (missed / total) ** 0.5 if total else 0.0


def _table(
    spectra: Mapping[str, Spectrum], ranks: Mapping[str, int], verified: Mapping[str, float]
) -> pd.DataFrame:
    """Return one row per change; a matrix without directions has an error of 1."""
    rows = {
        name: {**approximation_columns(spectrum, ranks[name]), "verified": verified.get(name, 1.0)}
        for name, spectrum in spectra.items()
    }
    return table_of(rows)
