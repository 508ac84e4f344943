"""Weights of a base that the modules of an adapter change: by name, prefix, or kohya's spelling."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Num
from torch import Tensor

from rankscope.checkpoints import Checkpoint
from rankscope.lora.adapter import Adapter
from rankscope.lora.peft import check_applies
from rankscope.matrices.reading import Reading
from rankscope.matrices.state_dict import assumed_manifest


@dataclass(frozen=True)
class Target:
    """The tensor of the base that a module's change is added to.

    transposed: whether it is stored inputs first, as GPT-2's Conv1D and tables of tokens are.
    """

    tensor: str
    shape: tuple[int, ...]
    transposed: bool

    def matrix(self, weight: Num[Tensor, "..."]) -> Num[Tensor, "m n"]:
        """Return the stored weight as outputs x inputs."""
        return weight.mT if self.transposed else weight.flatten(1)

    def stored(self, W: Num[Tensor, "m n"]) -> Num[Tensor, "..."]:
        """Return a matrix of outputs x inputs in the shape of the stored weight."""
        return (W.mT if self.transposed else W).reshape(self.shape)


def targets(adapter: Adapter, base: Checkpoint) -> dict[str, Target]:
    """Return the tensor of the base for each module of an adapter."""
    check_applies(adapter.source, adapter.config)
    names = _names(list(adapter.pairs), base)
    if missing := [module for module in adapter.pairs if module not in names]:
        raise ValueError(
            f"{base.source} has no weight for {len(missing)} of {len(adapter.pairs)} modules of "
            f"{adapter.source}, first {missing[0]!r}; pass the model that the adapter was made for"
        )
    empty = {
        names[module]: torch.empty(base.tensors[names[module]].shape, device="meta")
        for module in adapter.pairs
    }
    # The other names tell Conv1D from Linear.
    empty |= {
        name: torch.empty(t.shape, device="meta") for name, t in base.tensors.items() if t.ndim == 2
    }
    readings = {r.parameter: r for r in assumed_manifest(empty).readings if r.part_of is None}
    return {
        module: _target(adapter, module, base, names[module], readings.get(names[module]))
        for module in adapter.pairs
    }


def read_target(base: Checkpoint, target: Target) -> Num[Tensor, "..."]:
    """Read the weight of a target as it is stored; NaN and infinity are refused."""
    weight = base.read(target.tensor)
    if not bool(weight.isfinite().all()):
        raise ValueError(f"{base.source}: tensor {target.tensor!r} holds NaN or infinity")
    return weight


def _target(
    adapter: Adapter, module: str, base: Checkpoint, tensor: str, reading: Reading | None
) -> Target:
    stored = base.tensors[tensor]
    if not stored.dtype.is_floating_point:
        raise ValueError(
            f"{tensor!r} of {base.source} holds {stored.format} numbers, to which no change can be "
            "added; pass the checkpoint from before the quantisation"
        )
    shape, (m, n) = stored.shape, adapter.pairs[module].shape
    plain = len(shape) >= 2 and (shape[0], torch.Size(shape[1:]).numel()) == (m, n)
    swapped = len(shape) == 2 and shape == (n, m)
    if not plain and not swapped:
        raise ValueError(
            f"module {module!r} of {adapter.source} changes {m} x {n} weights, but {tensor!r} of "
            f"{base.source} has shape {shape}; pass the model that the adapter was made for"
        )
    # Square weights do not tell: the rules for names do.
    transposed = reading is not None and reading.axes[0][0] in reading.inputs
    return Target(tensor, shape, transposed if plain and swapped else swapped)


def _names(modules: list[str], base: Checkpoint) -> dict[str, str]:
    """Return the base's tensor name by module; prefixes may differ, but then for all alike."""
    weights = {name.removesuffix(".weight"): name for name in base.tensors}
    exact = {module: weights[module] for module in modules if module in weights}
    if exact:
        return exact
    for spelled in (weights, _spelled(weights)):
        for start in _prefixes(modules, spelled):
            matched = {m: spelled[start(m)] for m in modules if start(m) in spelled}
            if matched:
                return matched
    return {}


def _spelled(weights: Mapping[str, str]) -> dict[str, str]:
    """Return the weights by names with underscores for dots, without those that then collide."""
    spelled: dict[str, str] = {}
    twice: set[str] = set()
    for module, name in weights.items():
        key = module.replace(".", "_")
        twice |= {key} & spelled.keys()
        spelled[key] = name
    return {key: name for key, name in spelled.items() if key not in twice}


class _Prefix:
    """A change of prefix: `old` at the start becomes `new`."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def __call__(self, module: str) -> str:
        return self.new + module.removeprefix(self.old)


def _prefixes(modules: list[str], names: Mapping[str, str]) -> list[_Prefix]:
    """Return the changes of prefix that make the longest module's name one of `names`."""
    longest = max(modules, key=len, default="")
    cuts = [i + 1 for i, c in enumerate(longest) if c in "._"]
    shorter = [_Prefix(longest[:cut], "") for cut in cuts if longest[cut:] in names]
    longer = [
        _Prefix("", name[: len(name) - len(longest)])
        for name in names
        if name.endswith((f".{longest}", f"_{longest}"))
    ]
    return [_Prefix("", ""), *shorter, *longer]
