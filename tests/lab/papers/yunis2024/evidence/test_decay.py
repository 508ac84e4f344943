import numpy as np
import pytest
import xarray as xr

from findings import decay
from lab.claims.training_runs import PairCourse, course, flat, training_run


def ends(*values: float, kind: str = "linear", **options) -> xr.Dataset:
    """Pairs that end at these a / background."""
    pairs = [
        PairCourse(f"w{number}", "end", course([0.1, value / 10]), kind=kind)
        for number, value in enumerate(values)
    ]
    return training_run(pairs=pairs, shown_pair="w0 > end", **options)


def collapsed() -> xr.Dataset:
    return ends(9, 9, 9, loss=(1.0, 1.0))


@pytest.mark.parametrize(
    ("network", "finding", "rows"),
    [
        ("vgg", decay.vgg, ("seed 0", "seed 1", "seed 2")),
        ("unet", decay.unet_and_lstm, ("UNet, all pairs",)),
        ("lm", decay.lm_kinds, ("all",)),
    ],
)
def test_responses_to_decay_are_those_of_y5(
    network, finding, rows, table, evidence, share, listed
) -> None:
    found = {row[0]: row[1:] for row in table(finding).rows}
    for name, stored in zip(rows, evidence(f"yunis2024/{network}", "Y5"), strict=True):
        *medians, correlation, rises = found[name]
        assert medians == pytest.approx(listed(stored[3]), rel=5e-3)  # printed to three digits
        assert (correlation, share(rises)) == pytest.approx((stored[4], stored[5]))


def test_a_value_stays_under_its_decay_where_a_seed_collapsed(keep_sweep) -> None:
    keep_sweep(
        "vgg",
        {
            0.0: {0: ends(1, 1, 1), 1: ends(1, 1, 1)},
            0.1: {0: collapsed(), 1: ends(2, 2, 2)},
            1.0: {0: ends(3, 3, 3), 1: ends(6, 1, 1.5)},
            10.0: {0: ends(4, 4, 4), 1: ends(4, 4, 4)},
        },
    )
    found = {name: cells for name, *cells in decay.vgg().rows}
    assert decay.vgg().columns[1:5] == ("decay 0", "decay 0.1", "decay 1", "decay 10")
    assert found["seed 0"][:4] == [pytest.approx(1), None, pytest.approx(3), pytest.approx(4)]
    assert found["seed 1"][1] == pytest.approx(2)
    ((_, *factors),) = decay.between_seeds().rows
    # 2 times less, 3 times more, 2 times more: 2 in the middle, and 1/2 if signs were kept
    assert factors == [pytest.approx(1), None, pytest.approx(2), pytest.approx(1)]


def test_a_factor_is_the_same_up_and_down() -> None:
    assert decay.median_factor(xr.DataArray([0.5, 0.5, 2.0])) == pytest.approx(2)


def test_pairs_with_fewer_than_ten_directions_are_counted() -> None:
    spectra = {
        "wide": flat(20, [20, 20]),
        "nine": flat(20, [20, 9]),
        "eleven": flat(20, [20, 11]),
        "first": flat(20, [9, 20]),
    }
    ends_of = [("wide", "nine"), ("eleven", "nine"), ("wide", "eleven"), ("first", "wide")]
    pairs = [PairCourse(*names, course([0.1, 0.1]), kind="conv") for names in ends_of]
    dense = PairCourse("nine", "first", course([0.1, 0.1]), kind="conv-linear")
    assert decay.narrow_pairs(training_run(spectra, [*pairs, dense])) == 2


def test_kinds_are_told_apart(keep_sweep) -> None:
    def ds(qk: float, mlp: float) -> xr.Dataset:
        pairs = [
            *(PairCourse(n, "k", course([0.1, qk / 10]), kind="qk") for n in "abc"),
            PairCourse("w1", "w2", course([0.1, mlp / 10]), kind="w1-w2"),
            PairCourse("v", "o", course([0.1, 0.8]), kind="vo"),
        ]
        return training_run(pairs=pairs)

    keep_sweep("lm", {0.0: ds(1, 6), 0.1: ds(2, 5), 1.0: ds(3, 4), 10.0: ds(1, 1)})
    found = {name: cells for name, *cells in decay.lm_kinds().rows}
    assert found["q-k"][:4] == pytest.approx([1, 2, 3, 1])
    assert found["inside the MLP"][:4] == pytest.approx([6, 5, 4, 1])
    assert found["other than q-k"][:4] == pytest.approx([7, 6.5, 6, 4.5])
    assert found["inside the MLP"][4:] == [pytest.approx(-1), "0 of 1"]
    up_to_one = {name: cells for name, *cells in decay.lm_up_to_one().rows}
    assert up_to_one["q-k"][:3] == pytest.approx([1, 2, 3])
    assert up_to_one["q-k"][3:] == [pytest.approx(1), "3 of 3"]
    first_two, tenth, mlp = (row[2:] for row in decay.overlaps_by_rank().rows)
    assert first_two == tenth == pytest.approx((0.1, 0.2, 0.3, 0.1))
    assert mlp == pytest.approx((0.6, 0.5, 0.4, 0.1))


def test_overlaps_are_those_of_the_named_directions(keep_sweep) -> None:
    diagonal = np.tile(np.arange(1, 21) / 100, (2, 1))
    pairs = [
        PairCourse("q", "k", diagonal, kind="qk"),
        PairCourse("u", "v", diagonal, kind="w1-w2"),
    ]
    keep_sweep("lm", {0.1: training_run(pairs=pairs)})
    found = [row[2] for row in decay.overlaps_by_rank().rows]
    assert found == pytest.approx([0.015, 0.1, 0.055])


def test_directions_live_above_a_hundredth_of_the_largest() -> None:
    end = np.array([[2.0, 1.0, 0.022, 0.018]])
    spectra = {"blocks.0.attn.qkv": np.repeat(end, 2, 0), "other": flat(4, [4, 4])}
    assert decay.live(training_run(spectra)).tolist() == [3]


def test_heads_vanish_below_a_tenth() -> None:
    spectra = {
        "q0": flat(2, [2, 2]) * 0.11,
        "k0": flat(2, [2, 2]) * 0.11,
        "q1": flat(2, [2, 2]) * 0.09,
        "k1": flat(2, [2, 2]),
    }
    pairs = [
        PairCourse("q0", "k0", course([0.1, 0.1]), kind="qk"),
        PairCourse("q1", "k1", course([0.1, 0.1]), kind="qk"),
        PairCourse("q1", "k0", course([0.1, 0.1]), kind="other"),
    ]
    assert decay.vanished(training_run(spectra, pairs)) == ["q1 > k1"]


def test_networks_share_columns_only_where_their_decays_are_the_same(keep_sweep) -> None:
    keep_sweep("unet", {0.0: ends(1), 0.1: ends(1), 1.0: ends(1)})
    keep_sweep("lstm", {0.0: ends(1), 0.1: ends(1), 1.0: collapsed()})
    with pytest.raises(AssertionError, match="columns"):
        decay.unet_and_lstm()
