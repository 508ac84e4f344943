"""Tensors whose kind changes in mid-run: a head swapped, embeddings resized, another dtype."""

from collections.abc import Mapping, Set

from rankscope import snapshot
from rankscope.matrices import Weights
from rankscope.tracker.notices import Notices, listed
from rankscope.tracker.watch import Watch


class ChangeReport:
    """Reads the watched tensors, and tells of each tensor that is not as it was at first."""

    def __init__(self, watch: Watch, plan: snapshot.Plan, notices: Notices) -> None:
        self._watch = watch
        self._plan = plan
        self._notices = notices
        self._told: set[str] = set()

    @property
    def names(self) -> Set[str]:
        """Names of the watched tensors."""
        return self._watch.names

    def tensors(self) -> Weights:
        """Return the tensors that can be read now; ValueError if no matrix is left."""
        tensors = self._watch.tensors()
        changes = self._watch.changes
        if not any(name in tensors for name in self._plan.parameters):
            name, change = next(iter(changes.items()))
            raise ValueError(
                f"no watched tensor can be read any more, such as {name!r}, which {change}; "
                "use a new Tracker with another path"
            )
        return tensors

    def peek(self) -> Weights:
        """Return the tensors that can be read now, and tell of nothing."""
        return self._watch.tensors()

    def news(self, step: int) -> Mapping[str, str]:
        """Warn of changes that were not told before, and return them as the run's attribute."""
        changes = self._watch.changes
        new = {name: change for name, change in changes.items() if name not in self._told}
        if new:
            self._told |= new.keys()
            described = [f"{name} {change}" for name, change in new.items()]
            self._notices.once(
                f"changes at {step}",
                f"tensors of the model changed by step {step}: {listed(described)}. What cannot be "
                "read is NaN from here on, the rest goes on. If you changed the model, for example "
                "by pruning, close this tracker and make a new one with resume=True. With mixed "
                "precision of FSDP2, observe before forward or after backward",
            )
        return {name: f"step {step}: {change}" for name, change in new.items()}
