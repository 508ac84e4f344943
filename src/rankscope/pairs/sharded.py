"""Forward pass of a model sharded by `fully_shard`, whose modules swap their parameters.

While a module runs, whole parameters stand in for the sharded ones. The graph knows only these.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def gathering(module: nn.Module, gathered: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Append each whole parameter with its sharded one to `gathered`; shard them again at the end.

    Every rank must run the module.
    """
    sharded = {
        part: {
            key: shard for key, shard in part._parameters.items() if hasattr(shard, "full_tensor")
        }
        for part in module.modules()
    }
    if not any(sharded.values()):
        yield
        return

    def note(running: nn.Module, _: Any) -> None:
        for part in running.modules():
            for key, shard in sharded.get(part, {}).items():
                whole = part._parameters[key]
                if whole is not None and whole is not shard:
                    assert shard is not None
                    # It is frozen if the shard was when the model first ran.
                    whole.requires_grad_(shard.requires_grad)
                    gathered.append((whole, shard))

    try:
        with ExitStack() as hooks:
            for part in module.modules():
                hooks.enter_context(part.register_forward_pre_hook(note))
            yield
    finally:
        for part in module.modules():
            # The outermost module keeps whole parameters for a backward pass, which does not come.
            if callable(reshard := getattr(part, "reshard", None)):
                reshard()
        for whole, shard in gathered:
            whole.requires_grad_(shard.requires_grad)
