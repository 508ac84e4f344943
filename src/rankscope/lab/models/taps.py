"""Pairs of convolutions at the taps beside the centre, which yunis2024 does not compare."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

from rankscope.pairs import Cut, Pair


def other_taps(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Repeat each pair of kind "conv" at its other taps, as "conv1 > conv2 [tap 0,1]"."""
    return tuple(tap for pair in pairs if pair.kind == "conv" for tap in _around(pair))


def _around(pair: Pair) -> Iterator[Pair]:
    centre = pair.later_cut
    if centre is None:  # a 1x1 filter has no other tap
        return
    channels, *rest = centre.index
    for taps in product(*(range(size) for size in centre.shape[1:])):
        if taps != tuple(rest):
            cut = Cut(centre.shape, (channels, *taps))
            label = "tap " + ",".join(map(str, taps))
            yield replace(pair, kind="tap", later_cut=cut, label=label)
