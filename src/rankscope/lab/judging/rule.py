"""A rule decides a claim: it names the runs it needs and measures every seed against a bound."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import SupportsFloat

import numpy as np

from rankscope.lab.judging.selected_runs import Needs, Runs, all_runs
from rankscope.lab.judging.tally import Tally
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.running.run_key import RunKey, Value


@dataclass(frozen=True)
class Measured:
    """A measurement of one seed, and whether it meets the bound; None if the seed cannot tell.

    experiment, network, variant, part, seed: what was measured. `part` is a part of the network
    that is judged by itself, such as "K-Q".
    rows: evidence, a mapping of column to cell for each row.
    tallies: counted matrices or pairs, by the part of the rule they were counted for.
    remarks: sentences a reader should know.
    quantity: what `value` is, where it is not the rule's quantity.
    """

    value: SupportsFloat | None = None
    met: bool | np.bool_ | None = None
    rows: tuple[Mapping[str, Cell], ...] = ()
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    experiment: str = ""
    network: str = ""
    variant: Mapping[str, Value] = field(default_factory=dict)
    part: str = ""
    seed: int = 0
    quantity: str = ""

    def at(self, key: RunKey, seed: int, *, part: str = "") -> "Measured":
        """Return the measurement as one of this run and seed; its variant is not told apart."""
        return replace(
            self, experiment=key.experiment, network=key.network, seed=seed, part=part or self.part
        )

    def without_outcome(self, remark: str) -> "Measured":
        """Return the measurement as one that cannot tell, with the reason."""
        return replace(self, value=None, met=None, tallies={}, remarks=(remark, *self.remarks))


@dataclass(frozen=True)
class Rule:
    """A claim and how it is decided.

    claim: the key. headline: where this is a first rule that was changed later, the key of the rule
    that decides in its place.
    sentence: the claim in our words, the only place where it is written.
    quantity, bound: what a seed's value is, and what it has to meet, as printed: "<= 0.05".
    needs: chooses the runs the rule reads. Seeds that lack one are left out and named.
    network: the network that a run is judged as, where one outcome is about several.
    measure: yields a measurement for every seed. Its docstring says how the rule reads the claim.
    table: title of the table of evidence.
    reason: why the first rule was changed.
    changed: whether the rule was made after runs had been seen; then unseen seeds decide it, and
    verdicts say how many there are.
    ours: whether the claim is our own, and not the paper's.
    """

    claim: str
    sentence: str
    quantity: str
    bound: str
    measure: Callable[[Runs], Iterable[Measured]]
    needs: Needs = all_runs
    network: Callable[[RunKey], str] = attrgetter("network")
    table: str = ""
    reason: str = ""
    headline: str = ""
    changed: bool = False
    ours: bool = False

    def counts(self, seed: int, *, seen: Collection[int]) -> bool:
        """Return whether a seed decides the claim; a changed rule is decided by unseen seeds.

        Where only one seed had been seen it takes part, as the third of three.
        seen: seeds of the experiment that had been seen when the rule was changed.
        """
        return not (self.changed and len(seen) > 1 and seed in seen)
