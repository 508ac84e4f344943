"""Natural order of names."""

from rankscope.checkpoints import natural_order
from rankscope.checkpoints.natural_order import numbered_in_order


def test_numbers_are_counted_and_not_spelled() -> None:
    names = ["layers.10.a", "layers.2.b", "embed", "layers.2.a", "2", "step10", "10", "step9"]
    ordered = sorted(names, key=natural_order)
    assert ordered[:3] == ["2", "10", "embed"]
    assert ordered[3:] == ["layers.2.a", "layers.2.b", "layers.10.a", "step9", "step10"]


def test_numbered_modules_count_up_and_others_stay() -> None:
    model = [
        "wte.weight",
        *(f"h.{layer}.{name}.weight" for layer in range(12) for name in ("mlp", "attn")),
        "h.norm",
        "10",
        "a..b",
    ]
    assert numbered_in_order(model) == model
    by_letters = ["h.0.b", "h.0.a", "h.10.b", "h.10.a", "h.2.b", "h.2.a", "h.x", "e"]
    assert numbered_in_order(by_letters) == [
        *("h.0.b", "h.0.a", "h.2.b", "h.2.a", "h.10.b", "h.10.a", "h.x", "e")
    ]
