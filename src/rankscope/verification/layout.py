"""Heads of an attention module as they were read, and what depends on them in its forward pass."""

import torch
from torch import Tensor

from rankscope.matrices import Attention
from rankscope.matrices.attention import Role
from rankscope.matrices.reading import Reading
from rankscope.verification.dependence import changes, dependences, together
from rankscope.verification.trial import Rows, Trial


class Layout:
    """Heads of one attention module and what depends on them in a trial."""

    def __init__(self, attention: Attention, trial: Trial) -> None:
        self.trial = trial
        products = tuple(attention.products())
        self.heads = range(sum(product.kind == "kq" for product in products))
        # Rows of the readings are units; those of `outputs` are outputs, their columns units.
        self.readings: dict[Role, list[Reading]] = {
            "q": [product.right.transposed() for product in products if product.kind == "kq"],
            "k": [product.left.transposed() for product in products if product.kind == "kq"],
            "v": [product.right.transposed() for product in products if product.kind == "vo"],
            "o": [product.left for product in products if product.kind == "vo"],
        }
        self.readings["v"] = self.readings["v"] or [attention.value]
        self.queries, _ = self._distinct("q")
        self.keys, self.key_of = self._distinct("k")
        self.values, self.value_of = self._distinct("v")
        self.output = None if attention.output is None else attention.output.parameter
        watched = [] if self.output is None else [self.output]
        self.unchanged = trial.begin(together(self.queries), watched)
        self.sites = len(self.unchanged.logits)  # softmaxes; products follow them
        self.on_queries = dependences(self.queries, self.changed)
        self.on_keys = dependences(self.keys, self.changed)
        self.on_values = dependences(self.values, self.changed)

    def _distinct(self, role: Role) -> tuple[list[Rows], list[int]]:
        """Return the heads of a role, shared ones once, and the number of each product's head."""
        distinct: dict[tuple[str, bytes], Rows] = {}
        numbers: list[int] = []
        for reading in self.readings[role]:
            entries = self.trial.entries(reading).flatten()
            key = (reading.parameter, entries.numpy().tobytes())
            distinct.setdefault(key, {reading.parameter: entries})
            numbers.append(list(distinct).index(key))
        return list(distinct.values()), numbers

    def changed(self, rows: Rows) -> list[Tensor]:
        """Return which entries of all recorded tensors change along with some weights."""
        return changes(self.unchanged, self.trial.run(rows), self.output)

    def logit_sites(self) -> list[int]:
        """Return the tensors that hold logits: inputs of a softmax, else results of a product."""
        softmaxes = range(self.sites)
        if any(
            self.on_queries[site].any.any() or self.on_keys[site].any.any() for site in softmaxes
        ):
            return [site for site in softmaxes if self.both(site).any()]
        products = range(self.sites, len(self.on_queries) - (self.output is not None))
        return [
            site
            for site in products
            if self.both(site).any() and not self.on_values[site].any.any()
        ]

    def both(self, site: int) -> Tensor:
        """Return the entries of a tensor that depend on queries and on keys."""
        return self.on_queries[site].any & self.on_keys[site].any

    def width(self, role: Role) -> int:
        """Return the number of units of a head."""
        return self.readings[role][0].m

    def units(self, role: Role, chosen: Tensor) -> Rows:
        """Return the entries of some units, numbered inside a head, in every head."""
        parts: dict[tuple[str, bytes], Rows] = {}
        for reading in self.readings[role]:
            entries = self.trial.entries(reading)[chosen].flatten()  # a shared head counts once
            parts[reading.parameter, entries.numpy().tobytes()] = {reading.parameter: entries}
        return together(list(parts.values()))

    def wrong_heads(self, site: int) -> str | None:
        """Say which weights the logits depend on that were read as another head's; None if none."""
        queries, keys = self.on_queries[site], self.on_keys[site]
        if self.on_values[site].any.any():
            return "logits depend on weights that were read as values"
        if queries.several.any():
            return "a logit depends on weights that were read as queries of several heads"
        if keys.several.any():
            return "a logit depends on weights that were read as keys of several heads"
        both = self.both(site)
        read = torch.tensor(self.key_of)[queries.head[both]]
        wrong = (read != keys.head[both]).nonzero().flatten()
        if not len(wrong):
            return None
        head, key = (int(side.head[both][wrong[0]]) for side in (queries, keys))
        return f"query head {head} meets key head {key}, read as meeting {self.key_of[head]}"

    def columns(self) -> list[Tensor]:
        """Return the inputs of the output projection that belong to the units of each head."""
        assert self.output is not None
        shape = self.trial.parameter(self.output).shape
        positions = [self.trial.entries(reading)[0] for reading in self.readings["o"]]
        coordinates = torch.unravel_index(torch.cat(positions), shape)
        place = torch.zeros_like(coordinates[0])
        for axis, coordinate in enumerate(coordinates):
            if coordinate.unique().numel() > 1:
                place = place * shape[axis] + coordinate
        return list(place.split([len(position) for position in positions]))
