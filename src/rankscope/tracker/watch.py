"""The tensors a tracker watches, looked up in the model anew each time."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import named_tensors

READABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Watch:
    """Finds the tensors of a plan in a model, and tells which of them have changed their kind.

    unread: tensors that could not be read from the start, and why. They are not watched.
    changes: what has become of tensors that are no longer as they were at first. Those of another
        dtype are still read.
    """

    def __init__(self, model: nn.Module, plan: snapshot.Plan, *, everything: bool = False) -> None:
        """`everything` includes what no matrix is read from: biases, norms, buffers."""
        self._model = model
        tensors = named_tensors(model)
        self._matrices = frozenset(plan.parameters)
        names = (*tensors,) if everything else plan.parameters
        reasons = {name: self._unreadable(name, tensors[name]) for name in names}
        self.unread = {name: reason for name, reason in reasons.items() if reason}
        self._expected = {
            name: (tensors[name].shape, tensors[name].dtype)
            for name in names
            if name not in self.unread
        }
        self._keeps_dtypes = False
        self.changes: dict[str, str] = {}

    @property
    def names(self) -> Set[str]:
        """Names of the watched tensors."""
        return self._expected.keys()

    def keep_dtypes(self) -> None:
        """Read no tensor in a wider dtype than at first: its copies have no room for it."""
        self._keeps_dtypes = True

    def tensors(self) -> dict[str, Tensor]:
        """Return the watched tensors that can be read now, by name."""
        tensors = named_tensors(self._model)
        self.changes = {}
        readable = {}
        for name, (shape, dtype) in self._expected.items():
            tensor = tensors.get(name)
            if tensor is None:
                self.changes[name] = "is gone"
            elif tensor.shape != shape:
                self.changes[name] = f"changed its shape from {(*shape,)} to {(*tensor.shape,)}"
            elif reason := self._unreadable(name, tensor):
                self.changes[name] = reason
            elif tensor.dtype == dtype:
                readable[name] = tensor
            elif self._keeps_dtypes and torch.promote_types(tensor.dtype, dtype) != dtype:
                self.changes[name] = f"was {dtype} and is {tensor.dtype}, wider than its copies"
            else:
                self.changes[name] = f"was {dtype} and is measured as {tensor.dtype}"
                readable[name] = tensor
        return readable

    def _unreadable(self, name: str, tensor: Tensor) -> str:
        """Return why a tensor cannot be read, or ""."""
        if tensor.is_meta:
            return "has no values (meta device)"
        if tensor.layout != torch.strided:
            return f"is sparse ({tensor.layout})"
        if name in self._matrices and tensor.dtype not in READABLE:
            return f"holds {tensor.dtype} values"
        return ""
