"""The tensors a tracker watches, looked up in the model anew each time."""

from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import named_tensors


class Watch:
    """Finds the tensors of a plan in a model and checks that they keep their shape and dtype."""

    def __init__(self, model: nn.Module, plan: snapshot.Plan, *, everything: bool = False) -> None:
        """`everything` includes what no matrix is read from: biases, norms, buffers."""
        self._model = model
        self._names = (*named_tensors(model),) if everything else plan.parameters
        self._expected = {name: (t.shape, t.dtype) for name, t in self._find().items()}

    def tensors(self) -> dict[str, Tensor]:
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
        return tensors

    def _find(self) -> dict[str, Tensor]:
        tensors = named_tensors(self._model)
        missing = [name for name in self._names if name not in tensors]
        if missing:
            raise ValueError(
                f"the model no longer has the tensor {missing[0]!r}; "
                "use a new Tracker with another path when layers change"
            )
        return {name: tensors[name] for name in self._names}
