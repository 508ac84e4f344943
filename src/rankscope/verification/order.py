"""Tell queries from keys, which the singular values of K^T Q do not: its transpose has the same.

The query of one position reaches one position of the output, and many entries of one softmax. The
key of one position reaches many positions of the output, and one entry of many softmaxes.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch

from rankscope.matrices.attention import Role
from rankscope.verification.dependence import differs
from rankscope.verification.layout import Layout

# Parts of the input's length. The first query of causal attention meets one key.
PLACES = (0.0, 0.4, 1.0)

Order = Literal["as read", "swapped", "unknown"]


class Reach(NamedTuple):
    """Extent of what depends on the weights of a role at one position of their input.

    outputs: number of positions in front of the output projection.
    met: mean number of entries that change in a softmax, of the softmaxes with any.
    """

    outputs: int
    met: float


def order(layout: Layout, sites: Sequence[int]) -> Order:
    """Return whether queries and keys are what they were read as, at the sites of logits."""
    queries, keys = _reach(layout, "q", sites), _reach(layout, "k", sites)
    if queries.outputs != keys.outputs:
        return "as read" if queries.outputs < keys.outputs else "swapped"
    # A single query has a single output. Where there are more, something else mixes positions.
    if queries.outputs > len(PLACES) or queries.met == keys.met:
        return "unknown"
    return "as read" if queries.met > keys.met else "swapped"


def _reach(layout: Layout, role: Role, sites: Sequence[int]) -> Reach:
    rows = layout.units(role, torch.arange(layout.width(role)))
    outputs = entries = softmaxes = 0
    before = layout.trial.run_at_one_position({}, 0.0)
    for place in PLACES:
        after = layout.trial.run_at_one_position(rows, place)
        for site in (site for site in sites if site < layout.sites):
            changed = differs(before.scores[site], after.scores[site])
            entries += int(changed.sum())
            softmaxes += int(changed.any(-1).sum())
        if layout.output is not None:
            pairs = zip(before.operands[layout.output], after.operands[layout.output], strict=True)
            outputs += sum(int(differs(x, y).any(-1).sum()) for x, y in pairs)
    return Reach(outputs, entries / max(softmaxes, 1))
