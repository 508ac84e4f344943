"""Places of changes in an adapter: two factors, a whole module, a bias, or none."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rankscope.lora.changes import Changes
from rankscope.matrices.reading import Reading

# Kinds of matrices for which PEFT has layers with two factors.
FACTORED = ("linear", "conv")
EXPERTS = "a stack of experts; PEFT's adapters of stacks are not written"
TIED = (
    "the model uses it under other names too, which its checkpoint does not tell; pass "
    "--transformers, or the model"
)


@dataclass(frozen=True)
class Placement:
    """Places for the tensors of two checkpoints, before anybody knows which of them changed.

    factored: matrices that become two factors.
    saved: tensors that are stored whole, by the module that owns them (`modules_to_save`).
    biases: biases of layers with factors.
    left_out: why an adapter cannot hold the others.
    """

    factored: tuple[Reading, ...]
    saved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    biases: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)


def placement(changes: Changes, *, matrices_only: bool = False) -> Placement:
    """Return the place of each tensor; with `matrices_only`, all but factors are left out."""
    weights = (
        r
        for r in changes.readings
        if r.parameter.endswith(".weight") and r.parameter not in changes.without_factors
    )
    packed = {owner(r.parameter) for r in changes.readings if r.kind == "attention"}
    # A packed attention is stored whole, with the output projection inside it.
    factored = tuple(
        r for r in weights if r.kind in FACTORED and not _inside(owner(r.parameter), packed)
    )
    layers = {owner(r.parameter) for r in factored}
    with_factors = {r.parameter for r in factored}
    experts = {r.parameter for r in changes.readings if r.kind == "expert"}
    saved: dict[str, list[str]] = {}
    biases: list[str] = []
    left_out: dict[str, str] = {}
    for name in (*changes.names, *changes.ties):
        module = next((p for p in packed if _inside(owner(name), [p])), owner(name))
        if name in with_factors:
            continue
        if matrices_only:
            left_out[name] = "no matrix with factors, and only those are asked for"
        elif changes.ties.get(name) in with_factors:
            left_out[name] = f"it is tied to {changes.ties[name]!r}, which has factors"
        elif name in experts:
            left_out[name] = EXPERTS
        elif name in changes.unknown_ties:
            left_out[name] = TIED
        elif module in layers:
            if name.endswith(".bias"):
                biases.append(name)
            else:
                left_out[name] = f"PEFT has no place for it beside the factors of {module!r}"
        elif not module or any(_inside(layer, [module]) for layer in layers):
            left_out[name] = "a bare parameter, which an adapter has no place for"
        else:
            saved.setdefault(module, []).append(name)
    # PEFT replaces all modules whose names end like one in `modules_to_save`.
    clashing = {layer for layer in layers if layer.endswith(tuple(saved))}
    for layer in clashing:
        saved[layer] = [name for name in changes.names if owner(name) == layer]
    # A tensor with two names is held by either.
    held = {changes.ties.get(name, name) for names in saved.values() for name in names}
    return Placement(
        factored=tuple(r for r in factored if owner(r.parameter) not in clashing),
        saved={module: tuple(names) for module, names in saved.items()},
        biases=tuple(name for name in biases if owner(name) not in clashing),
        left_out={n: why for n, why in left_out.items() if changes.ties.get(n, n) not in held},
    )


def saved_modules(changes: Changes, places: Placement) -> dict[str, tuple[str, ...]]:
    """Return the tensors of the modules that changed and are stored whole, by module.

    PEFT takes a name in `modules_to_save` for all modules whose names end alike, and then needs
    the tensors of each. Those that did not change are stored too.
    """
    changed = [m for m, names in places.saved.items() if any(map(changes.changed, names))]
    return {m: names for m, names in places.saved.items() if m.endswith(tuple(changed))}


def left_out(changes: Changes, places: Placement) -> dict[str, str]:
    """Return the tensors that changed, or cannot be compared, and that an adapter cannot hold."""
    changed = {
        name: why
        for name, why in places.left_out.items()
        if changes.ties.get(name) not in places.left_out and changes.changed(name)
    }
    return {**changes.left_out, **changed}


def owner(tensor: str) -> str:
    """Return the name of the module that a tensor belongs to; empty for the root."""
    return tensor.rpartition(".")[0]


def _inside(name: str, modules: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
