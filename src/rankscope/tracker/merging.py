"""Values measured for parts of a plan, put into the rows of the whole plan."""

import math
from collections.abc import Collection, Mapping

import numpy as np

from rankscope import snapshot


class Merging:
    """Rows of a whole plan, filled part by part. What no part gives is NaN, its status "failed"."""

    def __init__(self, plan: snapshot.Plan) -> None:
        self._plan = plan
        self._row_of = {
            kind: {item.name: row for row, item in enumerate(getattr(plan, kind))}
            for kind in ("readings", "products", "pairs")
        }
        self.values: dict[str, np.ndarray] = {}

    def add(
        self,
        values: Mapping[str, np.ndarray],
        part: snapshot.Plan,
        *,
        owned: Collection[str] | None = None,
    ) -> None:
        """Put in what was measured for a part of the plan.

        owned: names of the tensors whose matrices count; those of others are left out.
        """
        for name, measured in values.items():
            kind = _kind(name)
            items = getattr(part, kind)
            rows = self._rows(name, kind, measured)
            for item, value in zip(items, measured, strict=True):
                if owned is not None and kind == "readings" and item.parameter not in owned:
                    continue
                row = self._row_of[kind][item.name]
                if measured.ndim == 1:
                    rows[row] = value
                else:
                    rows[row, : len(value)] = value

    def _rows(self, name: str, kind: str, measured: np.ndarray) -> np.ndarray:
        if name not in self.values:
            shape: tuple[int, ...] = (len(self._row_of[kind]),)
            if measured.ndim == 2:
                plan = self._plan
                shape = (*shape, plan.top if kind == "pairs" else plan.leading or plan.k)
            fill = snapshot.STATUS.index("failed") if name == "status" else math.nan
            self.values[name] = np.full(shape, fill, measured.dtype)
        return self.values[name]


def _kind(variable: str) -> str:
    if variable.startswith("product_"):
        return "products"
    return "pairs" if variable.startswith("alignment") else "readings"
