from rankscope.lab.models.taps import other_taps
from rankscope.pairs import Cut, Pair

CENTRE = Pair("conv1", "conv2", kind="conv", later_cut=Cut((8, 3, 3), (None, 1, 1)))


def test_every_tap_but_the_centre_once() -> None:
    taps = other_taps([CENTRE])
    want = {(i, j) for i in range(3) for j in range(3)} - {(1, 1)}
    assert {tap.later_cut.index[1:] for tap in taps if tap.later_cut} == want
    assert {tap.name for tap in taps} == {f"conv1 > conv2 [tap {i},{j}]" for i, j in want}
    assert {tap.kind for tap in taps} == {"tap"}


def test_only_pairs_of_convolutions_have_taps() -> None:
    one = Pair("conv1", "conv2", kind="conv")  # of one by one
    assert other_taps([Pair("conv2", "head"), one]) == ()
