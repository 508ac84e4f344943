import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh

from rankscope.figures import compare_matrices, compare_runs


def run(rank: int, names: tuple[str, ...] = ("a", "b")) -> xr.Dataset:
    """Three snapshots of 4 x 4 matrices of this rank, without noise."""
    S = np.zeros((3, len(names), 4))
    S[..., :rank] = 1.0
    shape = ("matrix", np.full(len(names), 4))
    return xr.Dataset(
        {"singular_values": (("step", "matrix", "k"), S), "loss": ("step", [1.0, 0.5, 0.01])},
        {"step": [0, 1, 2], "matrix": list(names), "m": shape, "n": shape}
        | {"part_of": ("matrix", [""] * len(names))},
    )


def test_lines_are_losses_and_mean_ranks() -> None:
    left, right = compare_runs({"low": run(1), "high": run(4).drop_vars("loss")}).axes
    assert [line.get_label() for line in left.lines] == ["low"] and left.get_yscale() == "log"
    assert [line.get_ydata().tolist() for line in right.lines] == [[0.25] * 3, [1.0] * 3]


def test_matrices_that_one_run_lacks_are_empty() -> None:
    axes, _ = compare_matrices({"low": run(1), "high": run(2, ("a", "c"))}).axes
    (mesh,) = (item for item in axes.collections if isinstance(item, QuadMesh))
    values = np.ma.filled(mesh.get_array(), np.nan)
    np.testing.assert_allclose(values, [[0.25, 0.5], [0.25, np.nan], [np.nan, 0.5]])


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 8 runs"):
        compare_runs({str(i): run(1) for i in range(9)})
