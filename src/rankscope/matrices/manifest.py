"""Manifest: every reading of a network as plain data, stored with a run as JSON."""

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from rankscope.matrices.attention import Attention
from rankscope.matrices.coverage import Coverage, Covered
from rankscope.matrices.product import ProductReading
from rankscope.matrices.reading import Reading
from rankscope.matrices.verification import Verification, Verified

SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """Every reading of a network.

    `matrices` are whole matrices and their gates. Heads and products follow from `attentions` and
    `lora`.
    """

    matrices: tuple[Reading, ...]
    attentions: tuple[Attention, ...]
    lora: tuple[ProductReading, ...]
    coverage: Coverage
    verification: Verification = field(default_factory=Verification)

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
    def ties(self) -> dict[str, str]:
        """Mapping from the name of a tied tensor to the name under which it is read."""
        return {line.tensor: line.tied_to for line in self.coverage if line.tied_to is not None}

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that readings and products need."""
        heads = (reading for attention in self.attentions for reading in attention.readings)
        factors = (factor for product in self.lora for factor in (product.left, product.right))
        readings = (*self.matrices, *heads, *factors)
        return tuple(dict.fromkeys(reading.parameter for reading in readings))

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
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            raise ValueError(
                f"manifest: expected a JSON object with schema {SCHEMA}, got {text[:60]!r}"
            )
        return cls(
            matrices=tuple(map(_reading, fields["matrices"])),
            attentions=tuple(map(_attention, fields["attentions"])),
            lora=tuple(map(_product, fields["lora"])),
            coverage=Coverage(tuple(Covered(**_tuples(line)) for line in fields["coverage"])),
            verification=_verification(fields.get("verification", {})),
        )


def _reading(fields: dict[str, Any]) -> Reading:
    return Reading(**_tuples(fields))


def _attention(fields: dict[str, Any]) -> Attention:
    roles = ("query", "key", "value", "output")
    readings = {role: fields[role] and _reading(fields[role]) for role in roles}
    return Attention(**{**fields, **readings})


def _product(fields: dict[str, Any]) -> ProductReading:
    sides = {side: _reading(fields[side]) for side in ("left", "right")}
    return ProductReading(**{**fields, **sides})


def _verification(fields: dict[str, Any]) -> Verification:
    return Verification(tuple(Verified(**line) for line in fields.get("lines", ())))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Turn lists into tuples, nested ones too, since JSON has no tuples."""
    return {key: _tuple(value) for key, value in fields.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(item) for item in value) if isinstance(value, list) else value
