"""Remarks on spectra that are made for them; nothing is said of matrices like their peers."""

import numpy as np
import pytest

from rankscope.scanning.matrix import MatrixScan
from rankscope.scanning.outstanding import remarks

FLAT = np.ones(12)


def scanned(name: str, S: np.ndarray, **fields: object) -> MatrixScan:
    norm = float(np.sqrt((S**2).sum()))
    return MatrixScan(name, "linear", 12, 20, "float32", S, norm, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("S", "remark"),
    [
        (FLAT, ""),
        (np.full(12, np.nan), "NaN or Inf"),
        (np.zeros(12), "all zero"),
        (np.array([4.0, *FLAT[1:]]), "one direction holds 59%"),
        (np.array([3.0, *FLAT[1:]]), ""),  # 45%
        (np.array([*FLAT[3:], 0, 0, 1e-12]), "3 of 12 directions are zero"),
        (np.array([5.0, 0, 0]), ""),  # too few values to say anything
    ],
)
def test_a_matrix_alone(S: np.ndarray, remark: str) -> None:
    assert remarks([scanned("a", S)]) == {"a": remark}


def test_a_change_and_its_note() -> None:
    zero = {"change": np.zeros(12), "change_norm": 0.0, "compared": True}
    absent = {"note": "not in the base", "compared": True}
    both = [scanned("a", FLAT, **zero), scanned("b", FLAT, **absent)]
    assert remarks(both) == {"a": "unchanged", "b": "not in the base"}


def test_a_layer_far_from_the_same_layer_elsewhere() -> None:
    """Layers within a quarter of the median are near, however little the others differ."""
    sizes = [1, 1.01, 0.99, 1.2, 3, 1]
    layers = [scanned(f"layers.{i}.up", size * FLAT) for i, size in enumerate(sizes)]
    peaked = np.array([2.0, *FLAT[1:]]) / np.sqrt(15 / 12)
    layers.append(scanned("layers.6.up", peaked))
    remark_by_name = {name: text for name, text in remarks(layers).items() if text}
    assert remark_by_name == {
        "layers.4.up": "norm 3x its peers'",
        "layers.6.up": "stable rank 0.31x its peers'",
    }
    assert not any(remarks(layers[:3]).values())  # too few to be peers
