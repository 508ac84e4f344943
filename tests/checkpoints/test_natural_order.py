"""Natural order of names."""

from rankscope.checkpoints import natural_order


def test_numbers_are_counted_and_not_spelled() -> None:
    names = ["layers.10.a", "layers.2.b", "embed", "layers.2.a", "2", "step10", "10", "step9"]
    ordered = sorted(names, key=natural_order)
    assert ordered[:3] == ["2", "10", "embed"]
    assert ordered[3:] == ["layers.2.a", "layers.2.b", "layers.10.a", "step9", "step10"]
