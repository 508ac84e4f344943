"""Experts stored as one tensor of three axes, read as one matrix per expert."""

from torch import nn

from rankscope.matrices.reading import Axes, Reading, dotted


def expert_readings(module: nn.Module, name: str) -> tuple[Reading, ...]:
    """Return the matrices in a module's stacks, if its class or name says it holds experts."""
    if not holds_experts(f"{name} {type(module).__name__}"):
        return ()
    # Hugging Face marks the classes whose experts are stored (in, out).
    transposed = bool(getattr(module, "is_transposed", False))
    return tuple(
        reading
        for key, parameter in module._parameters.items()
        if parameter is not None and parameter.ndim == 3
        for reading in stack_readings(
            dotted(name, key), tuple(parameter.shape), transposed=transposed
        )
    )


def holds_experts(text: str) -> bool:
    """Tell whether a name contains "expert", "moe" or GGUF's "_exps"."""
    return any(word in text.lower() for word in ("expert", "moe", "_exps"))


def stack_readings(
    parameter: str, shape: tuple[int, ...], *, transposed: bool = False
) -> tuple[Reading, ...]:
    """Return one matrix per expert of a tensor (expert, out, in), or (expert, in, out)."""
    experts, first, second = shape
    sides = (("in", first), ("out", second)) if transposed else (("out", first), ("in", second))
    axes: Axes = (("expert", experts), *sides)
    return tuple(
        Reading(
            name=f"{parameter.removesuffix('.weight')}.e{expert}",
            parameter=parameter,
            kind="expert",
            axes=axes,
            outputs=("out",),
            inputs=("in",),
            index=(("expert", expert),),
        )
        for expert in range(experts)
    )
