"""The tensors a tracker watches, looked up in the model anew each time."""

from collections.abc import Mapping, Set

import torch
from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import (
    Effective,
    Weights,
    effective_model,
    named_tensors,
    stored_parts,
    stored_tensors,
    walk,
)
from rankscope.matrices.quantization import is_quantized


class Watch:
    """Finds the tensors of a plan in a model, and tells which of them have changed their kind.

    Effective weights are computed when they are copied, one at a time, on the model's device, as
    the model computes them then: adapters may be merged, switched or scaled in mid-run.

    changes: what has become of stored tensors that are no longer as they were at first. Those of
        another dtype are still read.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: snapshot.Plan,
        *,
        raw: bool = False,
        everything: bool = False,
    ) -> None:
        """`everything` includes what no matrix is read from: biases, norms, buffers.

        raw: the plan reads the stored parts of effective weights.
        """
        self._model = model
        self._raw = raw
        others = (name for name, tensor in named_tensors(model).items() if _is_copied(tensor))
        names = (*plan.parameters, *others) if everything else plan.parameters
        self._names = tuple(dict.fromkeys(names))
        self._effective = {weight.parameter: weight for weight in plan.effective}
        stored = stored_tensors(model)
        self._expected = {
            part: (stored[part].shape, stored[part].dtype)
            for part in stored_parts(self._names, plan.effective)
        }
        self._shapes = {
            name: self._effective[name].shape if name in self._effective else stored[name].shape
            for name in plan.parameters
        }
        self._computed_shapes: dict[Effective, tuple[int, ...]] = {}
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
        weights = Weights(stored, self._effective_now(stored), dict(walk(self._model)))
        self.changes = {}
        parts = dict.fromkeys(part for name in self._names for part in weights.parts(name))
        readable = {part: stored[part] for part in parts if self._is_readable(part, stored)}
        names = (n for n in self._names if all(part in readable for part in weights.parts(n)))
        return Weights(readable, weights.effective, weights.modules, tuple(names))

    def _effective_now(self, stored: Mapping[str, Tensor]) -> dict[str, Effective]:
        """Return how the measured weights are computed now; as at first, where that has no room."""
        if self._raw:
            return self._effective
        weights = effective_model(self._model, shapes=self._computed_shapes).weights
        present = {weight.parameter: weight for weight in weights}
        effective = dict(self._effective)
        for name, shape in self._shapes.items():
            weight, tensor = present.get(name), stored.get(name)
            if weight is not None and weight.shape == shape and self._has_room(name):
                effective[name] = weight
            elif weight is None and tensor is not None and tensor.shape == shape:
                effective.pop(name, None)  # an adapter was merged, or a mask made permanent
        return effective

    def _has_room(self, name: str) -> bool:
        """Tell whether an effective weight, which is float32 or float64, fits into its copies."""
        dtype = torch.float32 if name in self._effective else self._expected[name][1]
        return dtype.itemsize >= 4 or not self._keeps_dtypes

    def _is_readable(self, name: str, stored: Mapping[str, Tensor]) -> bool:
        """Tell whether a stored tensor can be read now, and note what has become of it."""
        tensor = stored.get(name)
        if tensor is None:
            self.changes[name] = "is gone"
            return False
        shape, dtype = self._expected.get(name, (tensor.shape, tensor.dtype))
        if tensor.shape != shape:
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
            effective = weights.effective.get(name)
            shape = tensor.shape if effective is None else effective.shape
            dtype = tensor.dtype if effective is None else weights.dtype(effective)
            examples[name] = torch.empty((), dtype=dtype, device=tensor.device).expand(shape)
        return examples


def _is_copied(tensor: Tensor) -> bool:
    """Tell whether a tensor that no matrix is read from can be copied as it is."""
    return tensor.layout == torch.strided and not (tensor.is_meta or is_quantized(tensor))
