"""The tensors a tracker watches, looked up in the model anew each time."""

import torch
from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import Weights, named_tensors, stored_parts, stored_tensors, walk
from rankscope.matrices.quantization import is_quantized


class Watch:
    """Finds the tensors of a plan in a model and checks that they keep their shape and dtype.

    Effective weights are computed when they are copied, one at a time, on the model's device.
    """

    def __init__(self, model: nn.Module, plan: snapshot.Plan, *, everything: bool = False) -> None:
        """`everything` includes what no matrix is read from: biases, norms, buffers."""
        self._model = model
        others = (name for name, tensor in named_tensors(model).items() if _is_copied(tensor))
        names = (*plan.parameters, *others) if everything else plan.parameters
        self._names = tuple(dict.fromkeys(names))
        self._effective = {weight.parameter: weight for weight in plan.effective}
        self._parts = stored_parts(self._names, plan.effective)
        self._expected = {name: (t.shape, t.dtype) for name, t in self._find().items()}

    def tensors(self) -> Weights:
        """Return the model's tensors as they are now; ValueError if one has changed its kind."""
        tensors = self._find()
        for name, tensor in tensors.items():
            shape, dtype = self._expected[name]
            if tensor.shape != shape:
                raise ValueError(
                    f"the tensor {name!r} changed its shape from {tuple(shape)} to "
                    f"{tuple(tensor.shape)}; use a new Tracker with another path"
                )
            if tensor.dtype != dtype:
                raise ValueError(
                    f"the tensor {name!r} is {tensor.dtype} now and was {dtype}; with mixed "
                    "precision of FSDP2 observe before forward or after backward, else use a new "
                    "Tracker with another path"
                )
        return Weights(tensors, self._effective, dict(walk(self._model)), self._names)

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

    def _find(self) -> dict[str, Tensor]:
        tensors = stored_tensors(self._model)
        missing = [name for name in self._parts if name not in tensors]
        if missing:
            raise ValueError(
                f"the model no longer has the tensor {missing[0]!r}; "
                "use a new Tracker with another path when layers change"
            )
        return {name: tensors[name] for name in self._parts}


def _is_copied(tensor: Tensor) -> bool:
    """Tell whether a tensor that no matrix is read from can be copied as it is."""
    return tensor.layout == torch.strided and not (tensor.is_meta or is_quantized(tensor))
