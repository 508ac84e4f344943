"""Operations with kinks that a value went through, read from its autograd graph."""

from torch import Tensor

# Autograd's names of functions whose first or second derivative jumps. A clamp or a maximum may
# never be evaluated where it bends, so the warning says "does not cover", not "wrong".
KINKED = {
    "abs", "amax", "amin", "aminmax", "ceil", "celu", "clamp", "clampmax", "clampmin", "cummax",
    "cummin", "elu", "floor", "fmax", "fmin", "fmod", "frac", "hardshrink", "hardsigmoid",
    "hardswish", "hardtanh", "huberloss", "kthvalue", "leakyrelu", "linalgvectornorm", "max",
    "maximum", "median", "min", "minimum", "multimarginloss", "norm", "prelukernel", "relu",
    "remainder", "round", "rreluwithnoise", "sgn", "sign", "smoothl1loss", "softshrink", "sort",
    "threshold", "topk", "trunc", "where",
}  # fmt: skip


def kinks(value: Tensor) -> list[str]:
    """Return the kinked operations between `value` and its leaves with gradients, sorted."""
    kinked, seen, waiting = set(), set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().split("::")[-1].split("Backward")[0].lower()
        if name in KINKED or "maxpool" in name:
            kinked.add(name)
        waiting += [parent for parent, _ in node.next_functions]
    return sorted(kinked)
