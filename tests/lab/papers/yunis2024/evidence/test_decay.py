import numpy as np
import pytest
import xarray as xr

from lab.papers.archived import evidence, listed, share, table
from lab.papers.yunis2024.closed_form_runs import PairCourse, course, flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept, together
from rankscope.lab.papers.yunis2024.claims.decay import Y5
from rankscope.lab.papers.yunis2024.evidence import decay


def ends(*values: float, kind: str = "linear", **options) -> xr.Dataset:
    """Make a run whose pairs end at these a / background."""
    pairs = [
        PairCourse(f"w{number}", "end", course([0.1, value / 10]), kind=kind)
        for number, value in enumerate(values)
    ]
    return training_run(pairs=pairs, shown_pair="w0 > end", **options)


def collapsed() -> xr.Dataset:
    return ends(9, 9, 9, loss=(1.0, 1.0))


@pytest.mark.parametrize(
    ("network", "measure", "names"),
    [
        ("vgg", decay.vgg_response, ("seed 0", "seed 1", "seed 2")),
        ("unet", decay.unet_and_lstm_response, ("UNet, all pairs",)),
        ("lm", decay.lm_response, ("all",)),
    ],
)
def test_responses_to_decay_are_those_of_y5(network, measure, names) -> None:
    rows = {row[0]: row[1:] for row in table(measure).rows}
    judged = evidence("yunis2024", Y5, network=network)
    for name, row in zip(names, judged, strict=True):
        *medians, correlation, rises = rows[name]
        printed, *numbers = list(row.values())[3:6]
        assert medians == pytest.approx(listed(printed), rel=5e-3)  # printed to three digits
        assert [correlation, share(rises)] == pytest.approx(numbers)


def test_a_value_stays_under_its_decay_where_a_seed_collapsed() -> None:
    by_decay = {
        0.0: {0: ends(1, 1, 1), 1: ends(1, 1, 1)},
        0.1: {0: collapsed(), 1: ends(2, 2, 2)},
        1.0: {0: ends(3, 3, 3), 1: ends(6, 1, 1.5)},
        10.0: {0: ends(4, 4, 4), 1: ends(4, 4, 4)},
    }
    runs = swept("vgg", by_decay)
    made = decay.vgg_response(runs)
    assert made.columns[1:5] == ("decay 0", "decay 0.1", "decay 1", "decay 10")
    rows = {name: cells for name, *cells in made.rows}
    assert rows["seed 0"][:4] == [pytest.approx(1), None, pytest.approx(3), pytest.approx(4)]
    assert rows["seed 1"][1] == pytest.approx(2)
    ((_, *factors),) = decay.vgg_seeds(runs).rows
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
    names = [("wide", "nine"), ("eleven", "nine"), ("wide", "eleven"), ("first", "wide")]
    pairs = [PairCourse(*ends, course([0.1, 0.1]), kind="conv") for ends in names]
    dense = PairCourse("nine", "first", course([0.1, 0.1]), kind="conv-linear")
    assert decay.narrow_pairs(training_run(spectra, [*pairs, dense])) == 2


def test_kinds_are_told_apart() -> None:
    def ds(qk: float, mlp: float) -> xr.Dataset:
        pairs = [
            *(PairCourse(n, "k", course([0.1, qk / 10]), kind="qk") for n in "abc"),
            PairCourse("w1", "w2", course([0.1, mlp / 10]), kind="w1-w2"),
            PairCourse("v", "o", course([0.1, 0.8]), kind="vo"),
        ]
        return training_run(pairs=pairs)

    runs = swept("lm", {0.0: ds(1, 6), 0.1: ds(2, 5), 1.0: ds(3, 4), 10.0: ds(1, 1)})
    rows = {name: cells for name, *cells in decay.lm_response(runs).rows}
    assert rows["q-k"][:4] == pytest.approx([1, 2, 3, 1])
    assert rows["inside the MLP"][:4] == pytest.approx([6, 5, 4, 1])
    assert rows["other than q-k"][:4] == pytest.approx([7, 6.5, 6, 4.5])
    assert rows["inside the MLP"][4:] == [pytest.approx(-1), "0 of 1"]
    up_to_one = {name: cells for name, *cells in decay.lm_response_up_to_one(runs).rows}
    assert up_to_one["q-k"][:3] == pytest.approx([1, 2, 3])
    assert up_to_one["q-k"][3:] == [pytest.approx(1), "3 of 3"]
    first_two, tenth, mlp = (row[2:] for row in decay.lm_overlaps(runs).rows)
    assert first_two == tenth == pytest.approx((0.1, 0.2, 0.3, 0.1))
    assert mlp == pytest.approx((0.6, 0.5, 0.4, 0.1))


def test_overlaps_are_those_of_the_named_directions() -> None:
    diagonal = np.tile(np.arange(1, 21) / 100, (2, 1))
    pairs = [
        PairCourse("q", "k", diagonal, kind="qk"),
        PairCourse("u", "v", diagonal, kind="w1-w2"),
    ]
    runs = swept("lm", {0.1: training_run(pairs=pairs)})
    overlaps = [row[2] for row in decay.lm_overlaps(runs).rows]
    assert overlaps == pytest.approx([0.015, 0.1, 0.055])


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


def test_networks_share_columns_only_where_their_decays_are_the_same() -> None:
    runs = together(
        swept("unet", {0.0: ends(1), 0.1: ends(1), 1.0: ends(1)}),
        swept("lstm", {0.0: ends(1), 0.1: ends(1), 1.0: collapsed()}),
    )
    with pytest.raises(AssertionError, match="columns"):
        decay.unet_and_lstm_response(runs)
