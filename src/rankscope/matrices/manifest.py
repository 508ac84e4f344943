"""Manifest: every reading of a network as plain data, stored with a run as JSON."""

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from rankscope.matrices.attention import Attention
from rankscope.matrices.coverage import Coverage, Covered
from rankscope.matrices.effective import Effective, Step, stored_parts
from rankscope.matrices.product import ProductReading
from rankscope.matrices.reading import Reading
from rankscope.matrices.verification import Verification, Verified

SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """Every reading of a network.

    `matrices` are whole matrices and their gates. Heads and products follow from `attentions` and
    `lora`. `effective` are the tensors among those read that are computed from stored ones.
    """

    matrices: tuple[Reading, ...]
    attentions: tuple[Attention, ...]
    lora: tuple[ProductReading, ...]
    coverage: Coverage
    effective: tuple[Effective, ...] = ()
    verification: Verification = field(default_factory=Verification)

    def __repr__(self) -> str:
        return f"Manifest({self.coverage.summary})"

    @cached_property
    def readings(self) -> tuple[Reading, ...]:
        """Whole matrices and parts (`part_of` set): gates, blocks of fused projections, heads."""
        parts = (part for attention in self.attentions for part in attention.parts())
        return (*self.matrices, *parts)

    @cached_property
    def products(self) -> tuple[ProductReading, ...]:
        """Products K-Q and V-O of every head, then LoRA pairs."""
        heads = (product for attention in self.attentions for product in attention.products())
        return (*heads, *self.lora)

    @cached_property
    def vectors(self) -> frozenset[str]:
        """Names of the readings of tensors that are vectors in effect, such as class tokens."""
        tensors = {line.tensor for line in self.coverage if line.status == "vector"}
        return frozenset(r.name for r in self.readings if r.parameter in tensors)

    @cached_property
    def ties(self) -> dict[str, str]:
        """Mapping from the name of a tied tensor to the name under which it is read."""
        return {line.tensor: line.tied_to for line in self.coverage if line.tied_to is not None}

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that readings and products need."""
        heads = (reading for attention in self.attentions for reading in attention.readings)
        factors = (factor for product in self.lora for factor in product.readings)
        readings = (*self.matrices, *heads, *factors)
        return tuple(dict.fromkeys(reading.parameter for reading in readings))

    @property
    def stored(self) -> tuple[str, ...]:
        """Names of the stored tensors that readings and products need."""
        return stored_parts(self.tensors, self.effective)

    def verified(self, verification: Verification) -> "Manifest":
        """Return the manifest without refuted attention modules; the coverage names outcomes."""
        outcomes = {line.name: line for line in verification}
        notes = {
            reading.parameter: outcomes[attention.name].note
            for attention in self.attentions
            if attention.name in outcomes
            for reading in attention.readings
        }
        lines = (
            replace(line, how=f"{line.how}, {notes[line.tensor]}")
            if line.tensor in notes and line.matrices
            else line
            for line in self.coverage
        )
        refuted = {line.name for line in verification if line.status == "refuted"}
        return replace(
            self,
            attentions=tuple(a for a in self.attentions if a.name not in refuted),
            coverage=Coverage(tuple(lines)),
            verification=verification,
        )

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        fields = {
            "schema": SCHEMA,
            **asdict(self),
            "coverage": [asdict(line) for line in self.coverage],
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Return the manifest that `to_json` wrote."""
        try:
            fields = json.loads(text)
            if fields["schema"] == SCHEMA:
                return cls._from_fields(fields)
        except (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            pass  # a file may hold anything
        raise ValueError(
            f"manifest: expected JSON of schema {SCHEMA} as to_json writes it, got {text[:60]!r}"
        )

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> "Manifest":
        return cls(
            matrices=tuple(map(_reading, fields["matrices"])),
            attentions=tuple(map(_attention, fields["attentions"])),
            lora=tuple(map(_product, fields["lora"])),
            coverage=Coverage(tuple(Covered(**_tuples(line)) for line in fields["coverage"])),
            effective=tuple(map(_effective, fields.get("effective", ()))),
            verification=_verification(fields.get("verification", {})),
        )


def _reading(fields: dict[str, Any]) -> Reading:
    return Reading(**_tuples(fields))


def _attention(fields: dict[str, Any]) -> Attention:
    roles = ("query", "key", "value", "output", "query_latent", "key_value_latent")
    readings = {role: fields[role] and _reading(fields[role]) for role in roles if role in fields}
    return Attention(**{**_tuples(fields), **readings})


def _effective(fields: dict[str, Any]) -> Effective:
    steps = tuple(Step(**_tuples(step)) for step in fields["steps"])
    return Effective(**{**_tuples(fields), "steps": steps})


def _product(fields: dict[str, Any]) -> ProductReading:
    names = ("left", "right", "left_latent", "right_latent")
    factors = {name: fields[name] and _reading(fields[name]) for name in names if name in fields}
    return ProductReading(**{**fields, **factors})


def _verification(fields: dict[str, Any]) -> Verification:
    return Verification(tuple(Verified(**line) for line in fields.get("lines", ())))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Turn lists into tuples, nested ones too, since JSON has no tuples."""
    return {key: _tuple(value) for key, value in fields.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value
