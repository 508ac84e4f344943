"""Check that logits are a bilinear form of queries and keys, unit by unit, and that values pass on.

Perturb the weights of some units, inside all heads at once. In K_h^T Q_h every logit depends on
every unit, query unit u meets key unit u alone, and doubling a change doubles what it does.
"""

import torch
from torch import Tensor

from rankscope.matrices.attention import Role
from rankscope.verification.dependence import changes
from rankscope.verification.layout import Layout
from rankscope.verification.recording import Recording
from rankscope.verification.trial import Rows

LINEAR = 1e-3  # the largest second difference, relative to the first
MEETING = 1e-5  # the smallest effect of other units on each other, relative to that of the same


def wrong_form(layout: Layout, site: int) -> str | None:
    """Say why the logits at a site are no bilinear form of queries and keys; None if they are."""
    reason = _wrong_form_at(layout, site)
    if reason is None:
        return None
    # A cap on the logits, such as tanh, stands between the product and the softmax.
    products = range(layout.sites, layout.sites + len(layout.unchanged.products))
    same_heads = [p for p in products if layout.both(p).any() and layout.wrong_heads(p) is None]
    if any(_wrong_form_at(layout, product) is None for product in same_heads):
        return None
    return reason


def _wrong_form_at(layout: Layout, site: int) -> str | None:
    both, first_unit = layout.both(site), torch.tensor([0])
    roles: tuple[tuple[Role, str], ...] = (("q", "query"), ("k", "key"))
    for role, word in roles:
        alone = layout.changed(layout.units(role, first_unit))[site]
        if alone[both].double().mean() < 0.9:
            return f"a logit depends on some units of a {word} head only: no K^T Q"
        if (
            _curvature(layout, layout.units(role, torch.arange(layout.width(role))), site, both)
            > LINEAR
        ):
            return f"logits are not linear in the {word} weights"
    return _units_meet(layout, site) if layout.width("q") > 1 else None


def _curvature(layout: Layout, rows: Rows, site: int, chosen: Tensor) -> float:
    """Return the second difference of the entries with a change of weights, over the first."""
    start = _entries(layout.unchanged, site)[chosen]
    once = _entries(layout.trial.run(rows), site)[chosen] - start
    twice = _entries(layout.trial.run(rows, times=2.0), site)[chosen] - start
    return float((twice - 2 * once).abs().max() / once.abs().max())


def _units_meet(layout: Layout, site: int) -> str | None:
    """Compare how half of the query units meet the same key units, and how they meet the others.

    A rotary embedding mixes units, but not where query and key have the same position: some logit
    of each head has to show no meeting with others.
    """
    width = layout.width("q")
    order = torch.randperm(width, generator=torch.Generator().manual_seed(0))
    half, others = order[: width // 2], order[width // 2 :]
    same, crossed = _meeting(layout, site, half, half), _meeting(layout, site, half, others)
    heads = layout.on_queries[site].head
    for head in layout.heads:
        chosen = layout.both(site) & (heads == head)
        if chosen.any() and crossed[chosen].min() > MEETING * same[chosen].max():
            return f"query units of head {head} meet other key units than those read"
    return None


def _meeting(layout: Layout, site: int, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the mixed difference of the logits with query units and key units."""
    query_rows, key_rows = layout.units("q", queries), layout.units("k", keys)
    values = [
        _entries(layout.trial.run(rows), site)
        for rows in (query_rows, key_rows, joined(query_rows, key_rows))
    ]
    start = _entries(layout.unchanged, site)
    return (values[2] - values[1] - values[0] + start).abs().nan_to_num(0.0)


def joined(first: Rows, second: Rows) -> Rows:
    """Return the entries of both sets."""
    names = dict.fromkeys([*first, *second])
    return {
        name: torch.cat([rows[name] for rows in (first, second) if name in rows]) for name in names
    }


def _entries(recording: Recording, site: int) -> Tensor:
    return [*recording.logits, *recording.products][site].double()


def wrong_values(layout: Layout, columns: list[Tensor]) -> str | None:
    """Say why value units do not pass linearly to their output columns; None if they do."""
    assert layout.output is not None
    width = layout.width("v")
    for chosen in (torch.arange(0, width, 2), torch.arange(1, width, 2)):
        if not len(chosen):
            continue
        after = layout.trial.run(layout.units("v", chosen))
        expected = torch.zeros(sum(map(len, columns)), dtype=torch.bool)
        expected[torch.cat([own[chosen] for own in columns])] = True
        if not torch.equal(changes(layout.unchanged, after, layout.output)[-1], expected):
            return "value units reach other output columns than those read"
    rows = layout.units("v", torch.arange(width))
    start = layout.unchanged.operands[layout.output]
    once, twice = (layout.trial.run(rows, times=n).operands[layout.output] for n in (1.0, 2.0))
    for x, x1, x2 in zip(start, once, twice, strict=True):
        if (x2 - 2 * x1 + x).abs().max() > LINEAR * (x1 - x).abs().max():
            return "the output projection's inputs are not linear in the value weights"
    return None
