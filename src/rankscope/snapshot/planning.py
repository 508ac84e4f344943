"""Plans: which matrices, products and pairs of a network a snapshot measures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rankscope.matrices import Effective, ProductReading, Reading, Views
from rankscope.pairs import Cut, Pair


@dataclass(frozen=True)
class Plan:
    """Matrices (whole ones, and the parts that pairs need), products and pairs to measure.

    top: number of leading directions that enter an overlap.
    leading: number of leading values to keep of each spectrum; None keeps all.
    directions: number of leading directions to return for each named matrix, on its shorter side,
        beside the stored values.
    effective: those of the tensors that are computed from stored ones.
    frozen: names of tensors that do not train, measured again only if their content has changed.
    """

    readings: tuple[Reading, ...]
    products: tuple[ProductReading, ...]
    pairs: tuple[Pair, ...]
    top: int = 100
    directions: Mapping[str, int] = field(default_factory=dict)
    effective: tuple[Effective, ...] = ()
    frozen: frozenset[str] = frozenset()
    leading: int | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the tensors needed, each once."""
        names = [reading.parameter for reading in self.readings]
        for product in self.products:
            names += [reading.parameter for reading in product.readings]
        return tuple(dict.fromkeys(names))

    @property
    def sources(self) -> dict[str, set[str]]:
        """Names of the tensors behind each matrix, product and change."""
        sources = {reading.name: {reading.parameter} for reading in self.readings}
        sources |= {p.name: {r.parameter for r in p.readings} for p in self.products}
        return sources | {change_name(name): names for name, names in sources.items()}

    @property
    def k(self) -> int:
        """Length of the longest spectrum."""
        widths = [min(reading.m, reading.n) for reading in self.readings]
        return max(widths + [change_rank(product) for product in self.products], default=0)


def plan(
    chosen: Views,
    *,
    pairs: Sequence[Pair],
    products: bool,
    top: int = 100,
    directions: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan for the chosen matrices, their products, and the parts that `pairs` name."""
    readings = {reading.name: reading for reading in chosen.manifest.readings}
    _check_pairs(pairs, readings)
    if unknown := [name for name in directions if name not in chosen.readings]:
        raise ValueError(f"directions are asked of {unknown[0]!r}, which is not among the matrices")
    names = {*chosen.readings, *(n for pair in pairs for n in (pair.earlier, pair.later))}
    parameters = {reading.parameter for reading in chosen.readings.values()}
    measured = Plan(
        readings=tuple(reading for name, reading in readings.items() if name in names),
        products=tuple(
            product
            for product in (chosen.manifest.products if products else ())
            if product.kind == "lora"
            or {reading.parameter for reading in product.readings} <= parameters
        ),
        pairs=tuple(pairs),
        top=top,
        directions=dict(directions),
    )
    effective = tuple(w for w in chosen.manifest.effective if w.parameter in measured.parameters)
    frozen = frozenset(name for name in measured.parameters if not chosen.tensors.train(name))
    return replace(measured, effective=effective, frozen=frozen)


def _check_pairs(pairs: Sequence[Pair], readings: Mapping[str, Reading]) -> None:
    expected = "expected Pair objects; discover_pairs(model, inputs) finds them, and Pair makes one"
    if isinstance(pairs, str):
        raise ValueError(f"pairs is {pairs!r}, {expected}")
    for pair in pairs:
        if not isinstance(pair, Pair):
            raise ValueError(f"pairs holds {pair!r}, {expected}")
        for name in (pair.earlier, pair.later):
            if name not in readings:
                raise ValueError(
                    f"pair {pair.name!r} names the matrix {name!r}, which the model does not have; "
                    "rankscope.views(model, parts=True) lists those it has"
                )
        earlier, later = (meeting(pair, readings, end) for end in ("earlier", "later"))
        if earlier != later:
            raise ValueError(
                f"pair {pair.name!r}: {earlier} entries of the earlier vectors meet {later} of the "
                "later; give it an earlier_cut or later_cut that makes them equal"
            )
    counts = Counter(pair.name for pair in pairs)
    if duplicates := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"two pairs are named {duplicates[0]!r}; give them different labels")


def meeting(pair: Pair, readings: Mapping[str, Reading], end: str) -> int:
    """Number of entries of the vectors at one end that enter the overlap."""
    cut: Cut | None = getattr(pair, f"{end}_cut")
    return length(pair, readings, end) if cut is None else cut.size


def length(pair: Pair, readings: Mapping[str, Reading], end: str) -> int:
    """Number of entries of the vectors at one end."""
    reading = readings[getattr(pair, end)]
    return reading.m if getattr(pair, f"{end}_side") == "out" else reading.n


def change_name(name: str) -> str:
    return f"change of {name}"


def change_rank(product: ProductReading) -> int:
    return min(product.m, product.n, 2 * product.r)
