"""Closures that optimizers call inside their step, as those of Lightning and of LBFGS.

There the gradients of a step exist only once the closure has run, so a look at them waits for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def looking_after(
    args: Sequence[Any], kwargs: Mapping[str, Any], look: Callable[[], None]
) -> Arguments | None:
    """Return the arguments of `step` with a closure that calls `look` once it has run first.

    None if `step` has no closure. args: those of the method, whose first is the optimizer.
    """
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if not callable(closure):
        return None
    has_run = False

    def closure_and_look() -> Any:
        nonlocal has_run
        result = closure()
        if not has_run:
            has_run = True
            look()
        return result

    if len(args) > 1:
        return (args[0], closure_and_look, *args[2:]), dict(kwargs)
    return tuple(args), {**kwargs, "closure": closure_and_look}
