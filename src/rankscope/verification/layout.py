"""Heads of an attention module as they were read, and what depends on them in its forward pass."""

import torch
from torch import Tensor

from rankscope.matrices import Attention
from rankscope.matrices.reading import Reading
from rankscope.verification.dependence import changes, dependences, together
from rankscope.verification.trial import Rows, Trial


class Layout:
    """Heads of one attention module and what depends on them in a trial."""

    def __init__(self, attention: Attention, trial: Trial) -> None:
        self.attention, self.trial = attention, trial
        self.heads = range(attention.heads)
        self.queries = [self._rows(attention.head("q", head)) for head in self.heads]
        self.keys, self.key_of = self._shared("k")
        self.values, self.value_of = self._shared("v")
        self.output = None if attention.output is None else attention.output.parameter
        watched = [] if self.output is None else [self.output]
        self.unchanged = trial.begin(together(self.queries), watched)
        self.sites = len(self.unchanged.logits)  # softmaxes; products follow them
        self.on_queries = dependences(self.queries, self.changed)
        self.on_keys = dependences(self.keys, self.changed)
        self.on_values = dependences(self.values, self.changed)

    def _rows(self, reading: Reading) -> Rows:
        return {reading.parameter: self.trial.entries(reading).flatten()}

    def _shared(self, role: str) -> tuple[list[Rows], list[int]]:
        """Return the distinct key or value heads, and which of them each query head meets."""
        distinct: dict[tuple[str, bytes], Rows] = {}
        met: list[int] = []
        for head in self.heads:
            reading = self.attention.head(role, head)  # type: ignore[arg-type]
            rows = self._rows(reading)
            key = (reading.parameter, rows[reading.parameter].numpy().tobytes())
            distinct.setdefault(key, rows)
            met.append(list(distinct).index(key))
        return list(distinct.values()), met

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

    def units(self, role: str, chosen: Tensor) -> Rows:
        """Return the entries of some units, numbered inside a head, in every head."""
        readings = {
            self.attention.head(role, head).name: self.attention.head(role, head)  # type: ignore[arg-type]
            for head in self.heads
        }
        return together(
            [{r.parameter: self.trial.entries(r)[chosen].flatten()} for r in readings.values()]
        )

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

    def columns(self) -> Tensor:
        """Return the input of the output projection that belongs to each head and unit."""
        output = self.attention.output
        assert output is not None
        shape = self.trial.parameter(output.parameter).shape
        coordinates = torch.unravel_index(self.trial.entries(output)[0], shape)
        place = torch.zeros_like(coordinates[0])
        for axis, coordinate in enumerate(coordinates):
            if coordinate.unique().numel() > 1:
                place = place * shape[axis] + coordinate
        return place.reshape(self.attention.heads, -1)
