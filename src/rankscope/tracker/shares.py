"""Shares of a plan: which rank measures which matrices, products and pairs.

Every stored tensor has one owner, who decomposes its matrices. Tensors that a product or a pair
joins stay together where that leaves the shares even. A longer chain of pairs is cut: the rank that
measures a pair across a cut decomposes the end it does not own as well. That is one matrix more for
each cut, and cheaper to get right than singular vectors that travel between ranks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope import snapshot
from rankscope.pairs import Pair
from rankscope.tracker.budget import OVERHEAD, operations_of
from rankscope.tracker.partial import restricted

Piece = list[str]  # names of tensors that one rank owns together

# Groups that pairs join are not cut if they cost less than an equal share divided by this.
SMALL = 8


@dataclass(frozen=True)
class Share:
    """Part of a plan for one rank.

    plan: what it measures; also the borrowed ends of pairs across a cut.
    owned: names of the tensors whose values it reports.
    """

    plan: snapshot.Plan
    owned: frozenset[str]


def divided(plan: snapshot.Plan, ranks: int) -> tuple[Share, ...]:
    """Return a share for each rank, even in cost; the same on every rank, and some may be empty.

    The tensors stand in a row, joined ones beside each other, which is cut into equal lengths.
    """
    costs = costs_of(plan)
    total, cost_so_far = sum(costs.values()), 0.0
    owners: dict[str, int] = {}
    for piece in _pieces(plan, costs, small=total / ranks / SMALL):
        cost = sum(costs[name] for name in piece)
        middle = (cost_so_far + cost / 2) / total
        owners |= dict.fromkeys(piece, min(ranks - 1, int(middle * ranks)))
        cost_so_far += cost
    return tuple(_share(plan, owners, costs, rank) for rank in range(ranks))


def costs_of(plan: snapshot.Plan) -> dict[str, float]:
    """Return the rough number of operations for each tensor; products count for their first."""
    costs = dict.fromkeys(plan.parameters, 0.0)
    for reading in plan.readings:
        costs[reading.parameter] += OVERHEAD + operations_of(reading.m, reading.n, plan.leading)
    for product in plan.products:
        left, right = product.left, product.right
        cost = OVERHEAD + operations_of(left.m + right.m, 2 * left.n)
        costs[product.readings[0].parameter] += cost
    return costs


def _pieces(plan: snapshot.Plan, costs: Mapping[str, float], *, small: float) -> Iterator[Piece]:
    """Yield groups of tensors that stay together: what products join, and pairs unless it is large.

    small: largest cost of a group that pairs join.
    """
    parameter = {reading.name: reading.parameter for reading in plan.readings}
    inside = [[reading.parameter for reading in product.readings] for product in plan.products]
    across = [[parameter[pair.earlier], parameter[pair.later]] for pair in plan.pairs]
    factors_of = {name: piece for piece in _joined(costs, inside) for name in piece}
    for whole in _joined(costs, [*inside, *across]):
        if sum(costs[name] for name in whole) <= small:
            yield whole
        else:
            yield from {id(factors_of[name]): factors_of[name] for name in whole}.values()


def _joined(names: Iterable[str], joins: Iterable[Sequence[str]]) -> list[Piece]:
    """Return the names in groups that the joins connect; groups and names stay in order."""
    piece_of = {name: [name] for name in names}
    position = {name: i for i, name in enumerate(piece_of)}
    for first, *others in joins:
        for other in others:
            group, other_group = piece_of[first], piece_of[other]
            if group is not other_group:
                group += other_group
                piece_of |= dict.fromkeys(other_group, group)
    united = {id(piece): sorted(piece, key=position.__getitem__) for piece in piece_of.values()}
    return list(united.values())


def _share(
    plan: snapshot.Plan, owners: Mapping[str, int], costs: Mapping[str, float], rank: int
) -> Share:
    owned = frozenset(name for name, owner in owners.items() if owner == rank)
    parameter = {reading.name: reading.parameter for reading in plan.readings}

    def measures(pair: Pair) -> bool:
        ends = (parameter[pair.earlier], parameter[pair.later])
        return owners[max(ends, key=costs.__getitem__)] == rank  # who borrows the cheaper end

    pairs = tuple(pair for pair in plan.pairs if measures(pair))
    ends = {name for pair in pairs for name in (pair.earlier, pair.later)}
    readings = tuple(r for r in plan.readings if r.parameter in owned or r.name in ends)
    whole = restricted(plan, owned)
    share = replace(whole, readings=readings, pairs=pairs)
    needed = set(share.parameters)
    effective = tuple(weight for weight in plan.effective if weight.parameter in needed)
    return Share(replace(share, effective=effective, frozen=plan.frozen & needed), owned)
