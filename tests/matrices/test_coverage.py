"""Coverage as a printed table."""

from torch import nn

from rankscope.matrices import views


def test_the_printed_table() -> None:
    layers = {
        "tok": nn.Embedding(7, 4),
        "conv": nn.Conv1d(4, 4, 3, groups=2),
        "cell": nn.LSTMCell(4, 2),
    }
    coverage = views(nn.ModuleDict(layers)).coverage
    assert str(coverage).splitlines() == [
        "5 matrices of 4 tensors: 4 read",
        "tensor          shape  status  how",
        "tok.weight      7x4    read    Embedding: out x token, stored transposed",
        "conv.weight     4x2x3  read    Conv1d: 2 matrices out x in*tap0",
        "cell.weight_ih  8x4    read    LSTMCell: gate*out x in, in 4 parts too",
        "cell.weight_hh  8x2    read    LSTMCell: gate*out x in, in 4 parts too",
    ]
    assert coverage["conv.weight"].matrices == ("conv.g0", "conv.g1")
    assert repr(coverage) == (
        "Coverage(5 matrices of 4 tensors: 4 read; print it to see every tensor)"
    )


def test_vectors_in_the_printed_table() -> None:
    layers = {"conv": nn.Conv2d(6, 6, 3, groups=6), "gate": nn.Linear(4, 1)}
    assert str(views(nn.ModuleDict(layers)).coverage).splitlines() == [
        "1 matrices of 2 tensors: 1 read, 1 vector",
        "tensor       shape    status  how",
        "conv.weight  6x1x3x3  read    Conv2d: group*out x in*tap0*tap1",
        "gate.weight  1x4      vector  Linear: a vector, measured only if include= names it",
    ]
