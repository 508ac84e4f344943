"""Collect the matrices and products of a model or a state dict by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from rankscope.checkpoints import Checkpoint
from rankscope.matrices.coverage import Coverage, Covered
from rankscope.matrices.effective_model import stored_tensors, weights_of
from rankscope.matrices.manifest import Manifest
from rankscope.matrices.model import manifest
from rankscope.matrices.patterns import Patterns, close, included, matching
from rankscope.matrices.product import Product
from rankscope.matrices.reading import Reading, View
from rankscope.matrices.source import CheckpointTensors, Source, opened
from rankscope.matrices.state_dict import assumed_manifest
from rankscope.matrices.weights import Weights
from rankscope.matrices.wrappers import full_tensor, state_dict_tensors, walk


@dataclass(frozen=True, eq=False)
class Views(Mapping[str, View]):
    """Mapping from names to matrices, each read from the model's memory on access.

    Print `coverage` to see how every tensor with two or more axes is read. With sharded parameters
    every access gathers, so every rank must make it.
    """

    manifest: Manifest
    coverage: Coverage
    readings: Mapping[str, Reading]
    tensors: Weights

    def __getitem__(self, name: str) -> View:
        if name not in self.readings:
            raise KeyError(f"no matrix {name!r}{close(name, self.readings)}")
        reading = self.readings[name]
        return reading.view(full_tensor(self.tensors[reading.parameter]))

    def __contains__(self, name: object) -> bool:
        return name in self.readings

    def __iter__(self) -> Iterator[str]:
        return iter(self.readings)

    def __len__(self) -> int:
        return len(self.readings)

    def __repr__(self) -> str:
        return f"Views({self.coverage.summary}; print .coverage)"


def views(
    source: Source,
    *,
    like: nn.Module | Manifest | None = None,
    include: Patterns | None = None,
    exclude: Patterns | None = None,
    parts: bool = False,
    raw: bool = False,
) -> Views:
    """Return the matrices of a model, a state dict or a checkpoint.

    A weight that the model computes, as under weight norm, pruning or an adapter, is read as the
    forward pass multiplies by it.

    Args:
        source: a path is opened by `open_checkpoint`; its tensors stay on disk until they are
            read, and only the last one stays in memory.
        like: the model or manifest that a state dict belongs to; the model may be on the meta
            device. The state dict is then read exactly as that model. Without it, rules are
            assumed from names and shapes.
        include, exclude: patterns such as "blocks.*.mlp.*" on matrix names. Vectors, such as class
            tokens and gains, are included only by their whole name.
        parts: include gates, blocks of fused projections, and heads.
        raw: read the stored tensors instead of the weights computed from them.
    """
    source_manifest, tensors = _read(source, like, raw=raw)
    all_readings = source_manifest.readings
    candidates = {r.name: r for r in all_readings if parts or r.part_of is None}
    other_parts = [r.name for r in all_readings if r.name not in candidates]
    matrices = [name for name in candidates if name not in source_manifest.vectors]
    chosen = (
        set(matrices) if include is None else included(candidates, matrices, include, other_parts)
    )
    excluded: set[str] = set() if exclude is None else matching(candidates, exclude, other_parts)
    readings = {name: candidates[name] for name in candidates if name in chosen - excluded}
    lines = tuple(_without_excluded(line, readings) for line in source_manifest.coverage)
    return Views(
        manifest=source_manifest, coverage=Coverage(lines), readings=readings, tensors=tensors
    )


def products(source: Source, *, like: nn.Module | Manifest | None = None) -> dict[str, Product]:
    """Return K_h^T Q_h and O_h V_h of every attention head, and B A of LoRA pairs, as factors."""
    source_manifest, tensors = _read(source, like)
    needed = {
        factor.parameter for reading in source_manifest.products for factor in reading.readings
    }
    full = {name: full_tensor(tensors[name]) for name in tensors if name in needed}
    return {reading.name: reading.product(full) for reading in source_manifest.products}


def _read(
    source: Source, like: nn.Module | Manifest | None, *, raw: bool = False
) -> tuple[Manifest, Weights]:
    """Return the manifest of the source, and the tensors it names."""
    source = opened(source)
    if like is None:
        if isinstance(source, nn.Module):
            own = manifest(source, raw=raw)
            weights = weights_of(source, own.effective)
            return _without_meta(own, weights), weights
        if isinstance(source, Checkpoint):
            stored = CheckpointTensors.within(source)
            return assumed_manifest(stored.described(), stored.stored()), Weights(stored)
        tensors = state_dict_tensors(source)
        return assumed_manifest(tensors), Weights(tensors)
    if not isinstance(like, Manifest | nn.Module):
        raise ValueError(f"like is a model or a manifest, got {type(like).__name__}")
    known = like if isinstance(like, Manifest) else manifest(like, raw=raw)
    computing = next((m for m in (source, like) if isinstance(m, nn.Module)), None)
    modules = {} if computing is None else dict(walk(computing))
    if isinstance(source, nn.Module):
        return _matched(known, stored_tensors(source), modules)
    names = [line.tensor for line in known.coverage]
    if isinstance(source, Checkpoint):
        lazy = CheckpointTensors.within(source, known=names)
        return _matched(known, lazy.described(), modules, lazy=lazy)
    return _matched(known, state_dict_tensors(source, known=names), modules)


def _without_meta(known: Manifest, weights: Weights) -> Manifest:
    """Return the manifest without what is read from tensors on the meta device."""
    meta = {name for name in known.tensors if any(p.is_meta for p in weights.behind(name))}
    if not meta:
        return known
    reason = "on the meta device, which holds no values"
    lines = (
        replace(line, status="not read", how=reason, matrices=()) if line.tensor in meta else line
        for line in known.coverage
    )
    return replace(
        known,
        matrices=tuple(r for r in known.matrices if r.parameter not in meta),
        attentions=tuple(
            a for a in known.attentions if meta.isdisjoint(r.parameter for r in a.readings)
        ),
        lora=tuple(p for p in known.lora if meta.isdisjoint((p.left.parameter, p.right.parameter))),
        coverage=Coverage(tuple(lines)),
    )


def _matched(
    known: Manifest,
    tensors: dict[str, Tensor],
    modules: Mapping[str, nn.Module],
    *,
    lazy: CheckpointTensors | None = None,
) -> tuple[Manifest, Weights]:
    """Match tensors to a manifest by name and shape; its coverage then lists additional ones.

    lazy: where the values are, if `tensors` have none.
    """
    refused = {} if lazy is None else {n: t.refusal for n, t in lazy.stored().items() if t.refusal}
    for name in known.stored:
        if name in refused:
            raise ValueError(f"tensor {name!r} cannot be read: {refused[name]}")
    names = {name: name for name in tensors}
    # Files often keep only one name of a tied tensor, and not always the first.
    for alias, first in known.ties.items():
        if first not in tensors and alias in tensors:
            tensors = {**tensors, first: tensors[alias]}
            names[first] = alias
    missing = [name for name in known.stored if name not in tensors and name not in known.ties]
    if missing:
        raise ValueError(
            f"state dict: {len(missing)} of {len(known.stored)} tensors of the model are missing, "
            f"first {missing[0]!r}{close(missing[0], tensors)}"
        )
    aliases = {alias: first for alias, first in known.ties.items() if first in tensors}
    tensors = {**{alias: tensors[first] for alias, first in aliases.items()}, **tensors}
    if lazy is not None:
        more = {alias: names[first] for alias, first in aliases.items()} | names
        lazy = lazy.also({name: stored for name, stored in more.items() if name not in lazy})
    expected = {line.tensor: line for line in known.coverage}
    for name in known.stored:
        if name in expected and tuple(tensors[name].shape) != expected[name].shape:
            raise ValueError(
                f"tensor {name!r}: expected shape {expected[name].shape} as in the model, got "
                f"{tuple(tensors[name].shape)}; pass the model this state dict belongs to as like="
            )
    extra = tuple(
        Covered(name, tuple(tensor.shape), "not read", "not in the model given as like=")
        for name, tensor in tensors.items()
        if tensor.ndim >= 2 and name not in expected
    )
    values = tensors if lazy is None else lazy
    weights = Weights(values, {w.parameter: w for w in known.effective}, modules).checked()
    return replace(known, coverage=Coverage((*known.coverage, *extra))), weights


def _without_excluded(line: Covered, readings: Mapping[str, Reading]) -> Covered:
    """Return the coverage line of a tensor when only `readings` are wanted."""
    remaining = tuple(name for name in line.matrices if name in readings)
    if remaining == line.matrices:
        return line
    if line.status == "vector":
        return replace(line, matrices=())
    if remaining:
        excluded = len(line.matrices) - len(remaining)
        how = f"{line.how}; {excluded} of {len(line.matrices)} excluded"
        return replace(line, how=how, matrices=remaining)
    if any(reading.parameter == line.tensor for reading in readings.values()):
        return replace(line, how=f"{line.how}; parts only", matrices=())
    return replace(line, status="excluded", how="left out by include or exclude", matrices=())
