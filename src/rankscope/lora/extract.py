"""Adapters out of fine-tuned models: B A of each change, written, read again and verified."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.checkpoints.hub import hub_id
from rankscope.lora import peft
from rankscope.lora.adapter import open_adapter
from rankscope.lora.changes import MAX_RANK, Changes, decomposed, open_changes
from rankscope.lora.columns import noise_columns, shape_column, table_of
from rankscope.lora.placement import Placement, left_out, placement, saved_modules
from rankscope.lora.ranks import Rounding, choose_ranks, rounded_up
from rankscope.lora.resize import save_adapter
from rankscope.lora.spectrum import Spectrum
from rankscope.lora.writing import check_free
from rankscope.matrices.reading import Reading

Progress = Callable[[str, int, int], None]

ROWS = 1024  # of a change that are compared with B A at a time
# Names in transformers' models of the output layer and of the table of tokens it can share.
HEAD, TOKENS = "lm_head", ("wte", "embed_tokens", "word_embeddings", "shared")
HEADS = ("LMHeadModel", "ForCausalLM", "ForConditionalGeneration")
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
    prefix: str = "",
    matrices_only: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Extraction:
    """Write tuned - base as a PEFT adapter, read it back, and return its verified errors.

    One weight is in memory at a time, beside the factors. `choose_ranks` explains how energy,
    error, noise, max_rank, budget and round_to give each matrix its rank.

    dtype: number format of the factors: float32, bfloat16 or float16.
    prefix: put before the names of modules, if the model that loads the adapter has one more level
        than the checkpoints, such as "transformer.".
    matrices_only: leave out norms, embeddings and biases, which vLLM does not load.
    progress: called with a name, a number of finished matrices and their total.
    """
    target = Path(out).expanduser()
    check_free(target, overwrite=overwrite)
    if dtype not in FORMATS:
        raise ValueError(f"dtype is one of {', '.join(FORMATS)}, got {dtype!r}")
    both = open_changes(base, tuned)
    places = placement(both, matrices_only=matrices_only)
    spectra, factors = _factors(both, places, max_rank, FORMATS[dtype], round_to, progress)
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
    writer = _Writer(both, places, ranks, factors, prefix)
    config = writer.config(both.base.source)
    save_adapter(target, writer.layout, writer.read, config=config, overwrite=overwrite)
    verified = verified_errors(both, places.factored, target, prefix)
    return Extraction(
        target,
        _table(spectra, ranks, verified),
        writer.saved,
        left_out(both, places),
        spectra,
        sum(rank * spectra[name].size for name, rank in ranks.items()),
        writer.whole,
    )


def _factors(
    both: Changes,
    places: Placement,
    max_rank: int | None,
    dtype: torch.dtype,
    round_to: Rounding,
    progress: Progress | None,
) -> tuple[dict[str, Spectrum], dict[str, tuple[Tensor, Tensor]]]:
    """Return spectrum and scaled directions (U sqrt(S), sqrt(S) Vh) of each change, in `dtype`.

    Spectra have more values than a small `max_rank`, which the noise floor needs.
    """
    spectra: dict[str, Spectrum] = {}
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    known = None if max_rank is None else rounded_up(max_rank, round_to)
    for number, reading in enumerate(places.factored):
        if progress is not None:
            progress(reading.name, number, len(places.factored))
        if not both.changed(reading.parameter):
            continue
        before, after = both.matrix(reading)
        count = None if known is None else max(known, MAX_RANK)
        result = decomposed(before, after, kind=reading.kind, max_rank=count)
        roots = result.spectrum.S[:known].sqrt()
        name = reading.name
        spectra[name] = result.spectrum
        U, Vh = result.U[:, :known], result.Vh[:known]
        factors[name] = ((U * roots).to(dtype), (roots[:, None] * Vh).to(dtype))
    return spectra, factors


class _Writer:
    """Names, shapes and contents of the tensors of the new adapter."""

    def __init__(
        self,
        both: Changes,
        places: Placement,
        ranks: Mapping[str, int],
        factors: Mapping[str, tuple[Tensor, Tensor]],
        prefix: str,
    ) -> None:
        self.both, self.ranks, self.factors, self.prefix = both, ranks, factors, prefix
        self.readings = {r.name: r for r in places.factored if ranks.get(r.name, 0) > 0}
        changed = saved_modules(both, places, prefix)
        self.saved = tuple(f"{prefix}{module}" for module in changed)
        self.biases = tuple(name for name in places.biases if both.changed(name))
        self.tied = _tied_tokens(both, changed)
        self.layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self._sources: dict[str, Callable[[], Tensor]] = {}
        self.whole = 0  # parameters that are stored whole
        for name, reading in self.readings.items():
            self._add_factors(name, reading)
        for tensor in (t for names in changed.values() for t in names):
            self._add_whole(f"{prefix}{tensor}", tensor)
        if self.tied is not None:
            self._add_whole(f"{HEAD}.weight", self.tied)
            self.saved = (*self.saved, HEAD)
        for tensor in self.biases:
            layer, _, key = tensor.rpartition(".")
            has_factors = any(r.parameter == f"{layer}.weight" for r in self.readings.values())
            inner = "base_layer." if has_factors else ""
            self._add_whole(f"{prefix}{layer}.{inner}{key}", tensor)

    def _add_factors(self, name: str, reading: Reading) -> None:
        B, A = self.factors[name]
        rank = self.ranks[name]
        up, down = peft.tensor_names(f"{self.prefix}{_layer(reading)}")
        taps = [size for axis, size in reading.axes if axis.startswith("tap")]
        shapes = (B.shape[0], rank, *[1] * len(taps)), (rank, A.shape[1] // _product(taps), *taps)
        for key, factor, shape, axis in ((up, B, shapes[0], 1), (down, A, shapes[1], 0)):
            self.layout[key] = (tuple(shape), factor.dtype)
            self._sources[key] = _maker(factor, rank, axis, tuple(shape))

    def _add_whole(self, name: str, tensor: str) -> None:
        stored = self.both.tuned.tensors[self.both.names[tensor][1]]
        key = f"{peft.PREFIX}{name}"
        self.layout[key] = (stored.shape, stored.dtype)
        self.whole += torch.Size(stored.shape).numel()
        self._sources[key] = lambda: self.both.pair(tensor)[1]

    def read(self, name: str) -> Num[Tensor, "..."]:
        return self._sources[name]()

    def config(self, base: str) -> dict[str, Any]:
        """Return PEFT's configuration of the adapter."""
        ranks = {f"{self.prefix}{_layer(r)}": self.ranks[name] for name, r in self.readings.items()}
        tying: dict[str, Any] = {} if self.tied is None else {"ensure_weight_tying": True}
        return peft.config_for(
            ranks,
            modules_to_save=self.saved,
            **_base_fields(base),
            bias="all" if self.biases else "none",
            fan_in_fan_out=any(_stored_transposed(r) for r in self.readings.values()),
            **tying,
        )


def _base_fields(source: str) -> dict[str, Any]:
    """Return the fields by which PEFT finds the base: a path, or a name and revision on the hub."""
    named = None if os.path.exists(source) else hub_id(source)
    repo, revision = named or (source, None)
    fields = {"base_model_name_or_path": repo}
    return fields if revision is None else {**fields, "revision": revision}


def _tied_tokens(both: Changes, saved: Iterable[str]) -> str | None:
    """Return the saved table of tokens that is the output layer too; None if there is none.

    The checkpoint has it once. PEFT loads it under both names, and ties them again.
    """
    config = both.tuned.metadata.get("config") or {}
    has_head = any(str(name).endswith(HEADS) for name in config.get("architectures") or ())
    own_head = any(name.startswith(f"{HEAD}.") for name in both.names)
    if not has_head or own_head or config.get("tie_word_embeddings") is False:
        return None
    tables = {r.name: r.parameter for r in both.readings if r.kind == "embedding"}
    names = [name for name in tables if name in saved and name.rpartition(".")[2] in TOKENS]
    return tables[names[0]] if names else None


def _layer(reading: Reading) -> str:
    return reading.parameter.removesuffix(".weight")


def _product(sizes: list[int]) -> int:
    return torch.Size(sizes).numel()


def _stored_transposed(reading: Reading) -> bool:
    return reading.axes[0][0] in reading.inputs


def _maker(
    factor: Float[Tensor, "a b"], rank: int, axis: int, shape: tuple[int, ...]
) -> Callable[[], Tensor]:
    """Return what gives the leading `rank` rows or columns, with zeros for missing ones."""

    def make() -> Tensor:
        known = min(rank, factor.shape[axis])
        part = factor.narrow(axis, 0, known)
        padding = (0, rank - known) if axis == 1 else (0, 0, 0, rank - known)
        return torch.nn.functional.pad(part, padding).reshape(shape)

    return make


def verified_errors(
    both: Changes, readings: tuple[Reading, ...], path: Path, prefix: str = ""
) -> dict[str, float]:
    """Return |dW - B A|_F / |dW|_F of each matrix, with B A read from an adapter on disk."""
    adapter = open_adapter(path)
    errors = {}
    for reading in readings:
        module = f"{prefix}{_layer(reading)}"
        if module in adapter.pairs:
            before, after = both.matrix(reading)
            product = adapter.product(module)
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
        name: {
            **shape_column(spectrum.m, spectrum.n),
            **noise_columns(spectrum),
            "rank": ranks[name],
            "error": spectrum.error(ranks[name]),
            "verified": verified.get(name, 1.0),
        }
        for name, spectrum in spectra.items()
    }
    return table_of(rows)
