"""A device that computes on the CPU and counts what a GPU would be asked to do.

Its tensors report a device of their own, so that code takes the path of a GPU. Mixing them with
tensors of the host fails, as it does there.
"""

from collections import Counter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("xla")  # torch can name it and has no library for it
DECOMPOSITIONS = {"_linalg_eigh", "_linalg_svd", "linalg_qr"}
# Operations of which a GPU knows nothing: views, and names for memory.
FREE = {
    *("view", "_unsafe_view", "transpose", "permute", "slice", "select", "expand", "unsqueeze"),
    *("squeeze", "detach", "alias", "as_strided", "t", "split", "split_with_sizes", "unbind"),
    *("diagonal", "_reshape_alias", "unfold", "empty", "empty_like", "new_empty"),
}
# Operations for which the host waits: it reads a number, or the size of a result.
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal"}
READING = (Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.item)


class There(Tensor):
    """Tensor on the counting device, whose numbers are held by a tensor on the CPU."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        there = torch.Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )
        there.here = here
        return there

    def tolist(self) -> list[Any]:
        return self.cpu().tolist()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        # These ask for a guard of the device, which torch does not have.
        counting = Counting.current[-1]
        if function in (Tensor.__getitem__, Tensor.__setitem__):
            return counting.index(function, *args)
        if function in READING:
            return counting.read(function, args[0])
        if function is Tensor.untyped_storage:
            return args[0].here.untyped_storage()
        if function is Tensor.contiguous:
            x = args[0]
            return x if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        if function is Tensor.__invert__:
            return args[0].logical_not()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} outside of Counting")


class Sending(TorchFunctionMode):
    """Brings tensors of the host to the device, for which the host waits."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.to and DEVICE in args and not isinstance(args[0], There):
            Counting.current[-1].waits += 1
            return there(args[0])
        return function(*args, **(kwargs or {}))


class Counting(TorchDispatchMode):
    """Runs what happens on the device, and counts it.

    operations: launches by name; those that a GPU runs for every matrix of a stack count once.
    waits: copies to the host and from it; each waits for all operations before.
    """

    current: ClassVar[list["Counting"]] = []

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.waits = 0
        self._sending = Sending()

    @property
    def launches(self) -> int:
        return sum(self.operations.values())

    @property
    def decompositions(self) -> int:
        return sum(self.operations[name] for name in DECOMPOSITIONS)

    def __enter__(self) -> "Counting":
        self.current.append(self)
        self._sending.__enter__()
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._sending.__exit__(*exception)
        self.current.pop()

    def index(self, function: Any, x: Tensor, index: Any, *value: Tensor) -> Any:
        """Read or write entries as Python's brackets do."""
        chosen = tensors_in(index)
        self.waits += sum(i.dtype == torch.bool or not isinstance(i, There) for i in chosen)
        self.operations["index"] += 1 if chosen or value else 0
        with torch._C._DisableTorchDispatch():
            result = function(*here((x, index, *value)))
        return None if result is None else There(result)

    def read(self, function: Any, x: Tensor) -> Any:
        """Read one number, as the host does."""
        self.waits += 1
        with torch._C._DisableTorchDispatch():
            return function(here(x))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        operands, target = tensors_in((args, kwargs)), kwargs.get("device")
        name = function._schema.name.removeprefix("aten::")
        if not any(isinstance(x, There) for x in operands):
            if target != DEVICE:
                return function(*args, **kwargs)
            self._count(name)
            return wrapped(function(*args, **{**kwargs, "device": "cpu"}))
        foreign = [x for x in operands if not isinstance(x, There) and x.ndim]
        assert not foreign or name == "copy_", f"{name} mixes devices"
        self._count(name)
        if target is None:
            result = function(*here(args), **here(kwargs))
            in_place = name.endswith("_") or "out" in function._overloadname
            return args[0] if in_place else wrapped(result)
        result = function(*here(args), **here({**kwargs, "device": "cpu"}))
        if torch.device(target).type == "cpu":
            self.waits += 1
            return result.clone()
        return wrapped(result)

    def _count(self, name: str) -> None:
        self.waits += name in WAITING
        if name not in FREE:
            self.operations[name] += 1


def there(x: Tensor) -> Tensor:
    """Return a copy on the counting device."""
    return There(x.detach().clone())


def tensors_in(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def here(tree: Any) -> Any:
    return tree_map(lambda x: x.here if isinstance(x, There) else x, tree)


def wrapped(tree: Any) -> Any:
    return tree_map(lambda x: There(x) if isinstance(x, Tensor) else x, tree)
