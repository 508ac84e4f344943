"""The tensors a tracker watches, looked up in the model anew each time."""

from torch import Tensor, nn

from rankscope import snapshot
from rankscope.matrices import named_tensors


class Watch:
    """Gives the tensors of a plan, as long as they stay what they were at the start."""

    def __init__(self, model: nn.Module, plan: snapshot.Plan, *, everything: bool = False) -> None:
        """`everything`: also what no matrix is read from: biases, norms, buffers."""
        self._model = model
        self._names = (*named_tensors(model),) if everything else plan.parameters
        self._known = {name: (t.shape, t.dtype) for name, t in self._find().items()}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors as the model has them now; ValueError if one is not what it was."""
        tensors = self._find()
        for name, tensor in tensors.items():
            shape, dtype = self._known[name]
            if tensor.shape != shape:
                raise ValueError(
                    f"the tensor {name!r} changed its shape from {tuple(shape)} to "
                    f"{tuple(tensor.shape)}; go on with a new Tracker and another path"
                )
            if tensor.dtype != dtype:
                raise ValueError(
                    f"the tensor {name!r} is {tensor.dtype} now and was {dtype}; with mixed "
                    "precision of FSDP2 observe before forward or after backward, else go on with "
                    "a new Tracker and another path"
                )
        return tensors

    def _find(self) -> dict[str, Tensor]:
        tensors = named_tensors(self._model)
        missing = [name for name in self._names if name not in tensors]
        if missing:
            raise ValueError(
                f"the model no longer has the tensor {missing[0]!r}; "
                "track a model whose layers change with a new Tracker and another path"
            )
        return {name: tensors[name] for name in self._names}
