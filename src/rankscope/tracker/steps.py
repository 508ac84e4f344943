"""Numbers of steps: those a training loop passes, or counted when it passes none."""

import operator

from rankscope.tracker.notices import Notices

LARGEST = 2**62  # runs store steps in 64 bits
ADVICE = "pass a counter that goes on over the whole run, or none"


class StepCounter:
    """Turns the steps of a training loop into numbers that increase over the whole run."""

    def __init__(self, notices: Notices) -> None:
        self.observed: int | None = None  # the last step, as the run counts it
        self._offset = 0
        self._stride = 1
        self._notices = notices

    @property
    def following(self) -> int:
        """The step that is probably observed next: as far from the last one as that one was."""
        return 0 if self.observed is None else self.observed + self._stride

    def first(self, step: object) -> int:
        """Return the number of the first step of a run that goes on."""
        return self._number(step)

    def observe(self, step: object) -> int | None:
        """Return the number of an observed step, or None if the step came before."""
        number = self._number(step)
        if self.observed is not None and number <= self.observed:
            if number == self.observed:
                self._notices.once(
                    "repeated step",
                    f"step {step} was observed twice and the second call is ignored; call observe "
                    f"once per step and {ADVICE}",
                )
                return None
            number = self._goes_on(step, number)
        if self.observed is not None:
            self._stride = number - self.observed
        self.observed = number
        return number

    def snapshot(self, step: object, *, after: int | None) -> int:
        """Return the number of a snapshot: at least that of the last step, and of `after`.

        A snapshot without a step shows the weights of the next one to be observed.
        """
        number = self._number(step)
        last = max((n for n in (self.observed, after) if n is not None), default=None)
        if last is None or number >= last:
            return number
        self._notices.once("step back", _back(step, last, last + 1))
        return last + 1

    def _number(self, step: object) -> int:
        following = 0 if self.observed is None else self.observed + 1
        if step is None:
            return following
        number: int | None = None
        try:
            number = operator.index(step)  # type: ignore[arg-type]
        except TypeError:
            if isinstance(step, float) and step.is_integer():
                number = int(step)
        if number is not None and abs(number) <= LARGEST:
            return number + self._offset
        self._notices.once(
            "not a step",
            f"a step is a whole number of 64 bits, got {step!r}; it is counted as {following}",
        )
        return following

    def _goes_on(self, step: object, number: int) -> int:
        """Count on from the last step and keep the distances of the steps to come."""
        assert self.observed is not None
        following = self.observed + 1
        self._notices.once("step back", _back(step, self.observed, following))
        self._offset += following - number
        return following


def _back(step: object, last: int, number: int) -> str:
    return (
        f"steps must increase over the whole run; step {step} came after {last} and is counted as "
        f"{number}; {ADVICE}"
    )
