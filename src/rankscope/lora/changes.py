"""Changes between two checkpoints: which tensors pair up, and the spectrum of each difference."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint, StoredTensor, natural_order, open_checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.lora.adapter import is_adapter
from rankscope.lora.loaded_names import (
    assumed_ties,
    has_unknown_ties,
    is_token_table,
    loaded_names,
    tied_names,
    without_factors,
)
from rankscope.lora.spectrum import Spectrum, rounding_level
from rankscope.matrices import difference
from rankscope.matrices.reading import Reading
from rankscope.matrices.state_dict import assumed_manifest
from rankscope.matrices.wrappers import strip_wrappers
from rankscope.spectra import leading as leading_part
from rankscope.spectra import singular_values

MAX_RANK = 64  # directions that are computed if nothing else is asked for
JOINED = "the model has no such tensor, or joins it with others when it is loaded"


@dataclass(frozen=True, eq=False)
class Changes:
    """Two checkpoints of one model, read side by side, one tensor at a time.

    names: stored names, in the base and in the tuned checkpoint, by the name in the model.
    ties: further names in the model of tensors that are stored once.
    readings: how the matrices are read, by the names in the model.
    left_out: why other tensors are not compared.
    unknown_ties: tensors that the model has under names which are not known.
    without_factors: tensors that are known to be of no layer which can have factors.
    """

    base: Checkpoint
    tuned: Checkpoint
    names: Mapping[str, tuple[str, str]]
    ties: Mapping[str, str]
    readings: tuple[Reading, ...]
    left_out: Mapping[str, str]
    unknown_ties: frozenset[str]
    without_factors: frozenset[str]
    _latest: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def pair(self, tensor: str) -> tuple[Num[Tensor, "..."], Num[Tensor, "..."]]:
        """Read a tensor before and after; the latest pair stays in memory."""
        if tensor not in self._latest:
            self._latest.clear()
            base_name, tuned_name = self.names[self.ties.get(tensor, tensor)]
            pair = self.base.read(base_name), self.tuned.read(tuned_name)
            for checkpoint, weight in zip((self.base, self.tuned), pair, strict=True):
                if weight.is_floating_point() and not bool(weight.isfinite().all()):
                    raise ValueError(
                        f"{checkpoint.source}: tensor {tensor!r} holds NaN or infinity"
                    )
            self._latest[tensor] = pair
        return self._latest[tensor]

    def stored(self, tensor: str) -> StoredTensor:
        """Return what the tuned checkpoint says of a tensor."""
        return self.tuned.tensors[self.names[self.ties.get(tensor, tensor)][1]]

    def matrix(self, reading: Reading) -> tuple[Num[Tensor, "m n"], Num[Tensor, "m n"]]:
        """Read a matrix before and after."""
        before, after = self.pair(reading.parameter)
        return reading.view(before).W, reading.view(after).W

    def changed(self, tensor: str) -> bool:
        """Tell whether any number of a tensor differs."""
        before, after = self.pair(tensor)
        dtype = torch.promote_types(before.dtype, after.dtype)
        return not torch.equal(before.to(dtype), after.to(dtype))


def open_changes(
    base: StrPath | Checkpoint,
    tuned: StrPath | Checkpoint,
    *,
    model: nn.Module | None = None,
    prefix: str = "",
) -> Changes:
    """Return what two checkpoints of one model have in common; only headers are read.

    model: the model as it is loaded, whose names are taken; it may be on the meta device.
    prefix: put before the names of the checkpoints, if no model is given.
    """
    if model is not None and prefix:
        raise ValueError("a model has its own names; leave out the prefix")
    base, tuned = (
        source if isinstance(source, Checkpoint) else open_checkpoint(source)
        for source in (base, tuned)
    )
    for checkpoint in (base, tuned):
        if checkpoint.problems:
            raise ValueError(f"{checkpoint.source}: {checkpoint.problems[0]}")
        if is_adapter(checkpoint):
            raise ValueError(
                f"{checkpoint.source} holds an adapter, which is a change already; look at it with "
                "rs.lora.used_directions, or make a model of it with rs.lora.merge"
            )
    before, after = _plain_names(base), _plain_names(tuned)
    before = _with_prefix_of(before, after)
    left_out: dict[str, str] = {}
    names: dict[str, tuple[str, str]] = {}
    plain = {stored: name for name, stored in after.items()}
    tied_in_file: dict[str, str] = {}
    for name, tuned_name in after.items():
        first = tuned.tensors[tuned_name].tied_to
        if first is not None:
            tied_in_file[name] = plain[first]  # which stands for both
            continue
        reason = _why_not(name, before, base, tuned.tensors[tuned_name])
        if reason is None:
            names[name] = (before[name], tuned_name)
        else:
            left_out[name] = reason
    left_out |= {name: "not in the tuned checkpoint" for name in before.keys() - after.keys()}
    if not names and (shared := [name for name in after if name in before]):
        raise ValueError(
            f"{base.source} and {tuned.source} have no tensor that can be compared; the first, "
            f"{shared[0]!r}: {left_out.get(shared[0], 'tied to another')}"
        )
    if not names:
        raise ValueError(
            f"{base.source} and {tuned.source} have no tensor in common; the first are "
            f"{next(iter(before), None)!r} and {next(iter(after), None)!r}"
        )
    if model is None:
        names = {f"{prefix}{name}": pair for name, pair in names.items()}
        ties = {f"{prefix}{name}": f"{prefix}{first}" for name, first in tied_in_file.items()}
        config = tuned.metadata.get("config") or {}
        unknown, unfit = not ties and has_unknown_ties(config), frozenset[str]()
        ties = ties or assumed_ties(config, names)
    else:
        in_model = loaded_names(model, list(names))
        left_out |= {name: JOINED for name in names if name not in in_model}
        names = {loaded: names[name] for name, loaded in in_model.items()}
        ties, unknown = tied_names(model, names), False
        unfit = without_factors(model)
    tables = frozenset(name for name in names if unknown and is_token_table(name))
    ties = {name: first for name, first in ties.items() if first in names and first not in tables}
    return Changes(base, tuned, names, ties, _readings(tuned, names), left_out, tables, unfit)


def _readings(tuned: Checkpoint, names: Mapping[str, tuple[str, str]]) -> tuple[Reading, ...]:
    shapes = {name: tuned.tensors[stored] for name, (_, stored) in names.items()}
    empty = {n: torch.empty(t.shape, dtype=t.dtype, device="meta") for n, t in shapes.items()}
    whole = (r for r in assumed_manifest(empty).readings if r.part_of is None)
    return tuple(sorted(whole, key=lambda reading: natural_order(reading.name)))


def _plain_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the stored names by names without wrappers; a leading "module." is one too."""
    stored = [name for name, tensor in checkpoint.tensors.items() if tensor.part_of is None]
    wrapped = bool(stored) and all(name.startswith("module.") for name in stored)
    return {strip_wrappers(n.removeprefix("module.") if wrapped else n): n for n in stored}


def _with_prefix_of(names: dict[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Rename tensors like `others` if only a prefix differs, such as "transformer."."""
    if not names or names.keys() & others.keys():
        return names
    first = max(names, key=len)
    for other in others:
        if other.endswith(f".{first}"):
            prefix = other.removesuffix(first)
            return {f"{prefix}{name}": stored for name, stored in names.items()}
    for other in sorted(others, key=len, reverse=True):
        if first.endswith(f".{other}"):
            prefix = first.removesuffix(other)
            return {name.removeprefix(prefix): stored for name, stored in names.items()}
    return names


def _why_not(
    name: str, before: Mapping[str, str], base: Checkpoint, tuned: StoredTensor
) -> str | None:
    """Say why a tensor cannot be compared; None if it can."""
    if name not in before:
        return "not in the base"
    start = base.tensors[before[name]]
    if start.refusal or tuned.refusal:
        return start.refusal or tuned.refusal
    if start.shape != tuned.shape:
        return f"its shape changed from {start.shape} to {tuned.shape}; resize the base first"
    if not (start.dtype.is_floating_point and tuned.dtype.is_floating_point):
        return None if start.dtype == tuned.dtype else "its number format changed"
    return None


@dataclass(frozen=True)
class Directions:
    """Leading directions of a change: U (m, r) and Vh (r, n), and its spectrum."""

    U: Float[Tensor, "m r"]
    Vh: Float[Tensor, "r n"]
    spectrum: Spectrum


def known_directions(max_rank: int | None) -> int | None:
    """Return how many directions are computed for a largest rank; the noise floor needs some."""
    return None if max_rank is None else max(max_rank, MAX_RANK)


def decomposed(
    before: Num[Tensor, "m n"], after: Num[Tensor, "m n"], *, kind: str, leading: int | None
) -> Directions:
    """Return the leading directions of after - before, or all of them."""
    dW = difference(after, before)
    m, n = dW.shape
    rank = min(m, n) if leading is None else min(leading, m, n)
    result = leading_part(dW, rank)
    spectrum = Spectrum(
        result.S,
        m,
        n,
        rest=0.0 if rank == min(m, n) else float(result.remainder_norm),
        rounding=rounding_level(after),
        kind=kind,
    )
    return Directions(result.U, result.Vh, spectrum)


def changes(
    base: StrPath | Checkpoint,
    tuned: StrPath | Checkpoint,
    *,
    leading: int | None = MAX_RANK,
    model: nn.Module | None = None,
) -> dict[str, Spectrum]:
    """Return the spectrum of tuned - base of every matrix that changed, by its name.

    leading: number of singular values; the norm of what is left is known too. None means all.
    model: the model as it is loaded, if it has other names than its checkpoints; it may be on the
        meta device.
    """
    return dict(spectra_of(open_changes(base, tuned, model=model), leading=leading))


def spectra_of(changes: Changes, *, leading: int | None) -> Iterator[tuple[str, Spectrum]]:
    """Yield the spectra of the matrices that changed, one after the other."""
    for reading in changes.readings:
        if not changes.changed(reading.parameter):
            continue
        before, after = changes.matrix(reading)
        yield reading.name, _spectrum(before, after, reading.kind, leading)


def _spectrum(before: Tensor, after: Tensor, kind: str, leading: int | None) -> Spectrum:
    m, n = before.shape
    if leading is not None and leading < min(m, n):
        return decomposed(before, after, kind=kind, leading=leading).spectrum
    S = singular_values(difference(after, before))
    return Spectrum(S, m, n, rounding=rounding_level(after), kind=kind)
