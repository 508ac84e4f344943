"""Coverage as a printed table."""

from torch import nn

from rankscope.matrices import views


def test_the_printed_table() -> None:
    model = nn.ModuleDict({"tok": nn.Embedding(7, 4), "conv": nn.Conv2d(3, 8, 3)})
    assert str(views(model).coverage).splitlines() == [
        "2 matrices of 2 tensors: 2 read",
        "tensor       shape    status  how",
        "tok.weight   7x4      read    Embedding: out x token, stored transposed",
        "conv.weight  8x3x3x3  read    Conv2d: out x in*tap0*tap1",
    ]


def test_parts_and_groups_are_mentioned() -> None:
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 2), "conv": nn.Conv1d(4, 4, 3, groups=2)})
    coverage = views(model).coverage
    assert coverage["lstm.weight_ih_l0"].how == "LSTM: gate*out x in, in 4 parts too"
    assert coverage["conv.weight"].how == "Conv1d: 2 matrices out x in*tap0"
    assert coverage["conv.weight"].matrices == ("conv.g0", "conv.g1")
