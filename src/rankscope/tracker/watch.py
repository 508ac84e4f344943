"""The tensors a tracker watches, looked up in the model anew each time."""

from collections.abc import Set

import torch
from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import Weights, named_tensors, stored_parts, stored_tensors, walk
from rankscope.matrices.quantization import is_quantized


class Watch:
    """Finds the tensors of a plan in a model, and tells which of them have changed their kind.

    Effective weights are computed when they are copied, one at a time, on the model's device.

    changes: what has become of stored tensors that are no longer as they were at first. Those of
        another dtype are still read.
    """

    def __init__(self, model: nn.Module, plan: snapshot.Plan, *, everything: bool = False) -> None:
        """`everything` includes what no matrix is read from: biases, norms, buffers."""
        self._model = model
        others = (name for name, tensor in named_tensors(model).items() if _is_copied(tensor))
        names = (*plan.parameters, *others) if everything else plan.parameters
        self._names = tuple(dict.fromkeys(names))
        self._effective = {weight.parameter: weight for weight in plan.effective}
        stored = stored_tensors(model)
        self._expected = {
            part: (stored[part].shape, stored[part].dtype)
            for part in stored_parts(self._names, plan.effective)
        }
        self._keeps_dtypes = False
        self.changes: dict[str, str] = {}

    @property
    def names(self) -> Set[str]:
        """Names of the watched tensors."""
        return dict.fromkeys(self._names).keys()

    def keep_dtypes(self) -> None:
        """Read no tensor in a wider dtype than at first: its copies have no room for it."""
        self._keeps_dtypes = True

    def tensors(self) -> Weights:
        """Return the watched tensors that can be read now."""
        stored = stored_tensors(self._model)
        self.changes = {}
        readable = {
            part: stored[part] for part in self._expected if self._is_readable(part, stored)
        }
        weights = Weights(readable, self._effective, dict(walk(self._model)))
        names = (n for n in self._names if all(part in readable for part in weights.parts(n)))
        return Weights(readable, self._effective, weights.modules, tuple(names))

    def _is_readable(self, name: str, stored: dict[str, Tensor]) -> bool:
        """Tell whether a stored tensor can be read now, and note what has become of it."""
        shape, dtype = self._expected[name]
        tensor = stored.get(name)
        if tensor is None:
            self.changes[name] = "is gone"
        elif tensor.shape != shape:
            self.changes[name] = f"changed its shape from {(*shape,)} to {(*tensor.shape,)}"
        elif tensor.is_meta:
            self.changes[name] = "has no values (meta device)"
        elif tensor.layout != torch.strided:
            self.changes[name] = f"is sparse ({tensor.layout})"
        elif tensor.dtype == dtype:
            return True
        elif self._keeps_dtypes and torch.promote_types(tensor.dtype, dtype) != dtype:
            self.changes[name] = f"was {dtype} and is {tensor.dtype}, wider than its copies"
        else:
            self.changes[name] = f"was {dtype} and is measured as {tensor.dtype}"
            return True
        return False

    def examples(self) -> dict[str, Tensor]:
        """Return a tensor of each shape and dtype that takes no memory; nothing is computed."""
        weights = self.tensors()
        examples: dict[str, Tensor] = {}
        for name in weights:
            tensor = weights.stored[weights.parts(name)[0]]
            effective = self._effective.get(name)
            shape = tensor.shape if effective is None else effective.shape
            dtype = tensor.dtype if effective is None else weights.dtype(effective)
            examples[name] = torch.empty((), dtype=dtype, device=tensor.device).expand(shape)
        return examples


def _is_copied(tensor: Tensor) -> bool:
    """Tell whether a tensor that no matrix is read from can be copied as it is."""
    return tensor.layout == torch.strided and not (tensor.is_meta or is_quantized(tensor))
