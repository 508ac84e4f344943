"""One training at each of the paper's weight decays."""

from collections.abc import Callable, Iterable

from rankscope.lab.training.run import TrainingRun


def at_decays(
    run: TrainingRun, decays: Iterable[float], *, acting: Callable[[float], float] = float
) -> list[TrainingRun]:
    """Return the run at each decay of the paper; `acting` gives the decay that stands for it."""
    return [run.with_decay(acting(decay), paper=decay) for decay in decays]
