"""No measure changes training: weights, random numbers, gradients; no hook is left behind."""

import pytest

import rankscope as rs
from measures.training import assert_same, train

MEASURES = {
    "updates": rs.Updates(),
    "gradients": rs.Gradients(full=True),
    "raw gradients": rs.Gradients(at="backward"),
    "moments": rs.Moments(full=True),
    "attention": rs.Attention(queries=3),
    "rotation": rs.Rotation(leading=3),
    "activations": rs.Activations(["first", "norm", "attention"]),
}


@pytest.mark.parametrize("name", [*MEASURES, "all"])
@pytest.mark.parametrize("schedule", [1, 3])
def test_training_is_bit_identical(tmp_path, name: str, schedule: int) -> None:
    measure = (
        [m for n, m in MEASURES.items() if n != "raw gradients"]
        if name == "all"
        else [MEASURES[name]]
    )
    bare, _ = train(None)
    measured, _ = train(tmp_path / "run", measure, schedule=schedule)
    assert_same(bare, measured)
    variables = set(rs.open(tmp_path / "run").variables)
    assert all(set(m.variables) <= variables for m in rs.open(tmp_path / "run").rankscope.measures)
