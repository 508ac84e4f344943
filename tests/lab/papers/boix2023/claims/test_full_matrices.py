"""Claim B6 on singular values that are logistic curves."""

from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr

from lab.papers.boix2023.toy_runs import full_run, rises
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.full_matrices import B6, B6_FIRST, rise_dataset
from rankscope.lab.running.run_key import RunKey

# Gaps 1/s' - 1/s against widths log(81) / (2 s log(1/alpha)): apart at 1e-8 in both products.
APART = np.array([[2.0, 1.0, 0.5, 0.25], [3.0, 1.5, 0.75, 0.4]])
IN_TURN = (2.0, 1.0, 0.5, 0.25)  # at every alpha
CLOSE = (2.0, 1.9, 0.5, 0.25)  # the first two overlap at 1e-8, and not at 1e-32
THREE = (2.0, 1.0, 0.5, 0.497)  # the last two overlap at every alpha
TWO = (2.0, 1.0, 0.99, 0.5)  # the second and third do
LATE = (0.12, 0.11, 0.1, 0.09)  # rise after the end
TWO_RISE = (2.0, 1.0, 0.11, 0.1)


def head(kq: Sequence[float], vo: Sequence[float], log10_alpha: float, **options) -> xr.Dataset:
    return full_run(np.array([kq, vo]), log10_alpha, **{"end": 6.0, "points": 3000} | options)


def verdict(runs: dict[str, xr.Dataset]) -> Verdict:
    """Judge runs given as "network/kind", the same in three seeds."""
    keys = {RunKey(*name.split("/")[:1], kind=name.split("/")[1]): runs[name] for name in runs}
    return judge(B6, AvailableRuns({key: dict.fromkeys(range(3), ds) for key, ds in keys.items()}))


def gaussian(at_8: Sequence[float], at_32: Sequence[float], **options) -> dict[str, xr.Dataset]:
    """Return runs whose V-O is as given and whose K-Q does not rise."""
    return {
        "gaussian-1e-8/full": head(LATE, at_8, -8.0, **options),
        "gaussian-1e-32/full": head(LATE, at_32, -32.0, **options),
    }


def parts(judged: Verdict) -> dict[str, NetworkVerdict]:
    assert {network.network for network in judged.networks} == {"gaussian"}
    return {network.part: network for network in judged.networks}


@pytest.mark.parametrize(
    ("at_8", "at_32", "word", "value"),
    [
        (CLOSE, CLOSE, "holds", 4),  # 1 at 1e-8
        (IN_TURN, IN_TURN, "holds", 4),
        (THREE, THREE, "holds", 3),
        (IN_TURN, THREE, "fails", 3),  # fewer than at 1e-8
        (TWO, TWO, "fails", 2),
        (CLOSE, TWO, "fails", 2),  # more than at 1e-8, and too few
        (IN_TURN, TWO_RISE, "no data", None),
        (TWO_RISE, IN_TURN, "no data", None),
    ],
)
def test_values_of_the_gaussian_teacher(
    at_8: Sequence[float], at_32: Sequence[float], word: str, value: int | None
) -> None:
    judged = parts(verdict(gaussian(at_8, at_32)))
    assert (judged["V-O"].word, judged["V-O"].value) == (word, value)
    assert (judged["K-Q"].word, judged["K-Q"].value) == ("no data", None)


def test_a_run_that_ends_before_the_next_value_rises_cannot_tell() -> None:
    """Four values rise in turn at 1e-8. At 1e-32 three do, and the fourth would at 4."""
    runs = gaussian(IN_TURN, IN_TURN) | {"gaussian-1e-32/full": head(LATE, IN_TURN, -32.0, end=3.0)}
    assert parts(verdict(runs))["V-O"].word == "no data"
    three = gaussian(THREE, IN_TURN) | {"gaussian-1e-32/full": head(LATE, IN_TURN, -32.0, end=3.0)}
    assert parts(verdict(three))["V-O"].word == "holds"


@pytest.mark.parametrize(
    ("at_8", "at_32", "word"),
    [
        (CLOSE, CLOSE, "holds"),
        (IN_TURN, THREE, "fails"),
        (TWO, TWO, "fails"),
        (LATE, IN_TURN, "no data"),
        (IN_TURN, TWO_RISE, "no data"),
    ],
)
def test_keys_are_read_in_the_long_runs_and_values_in_the_others(
    at_8: Sequence[float], at_32: Sequence[float], word: str
) -> None:
    """Values overlap in the long runs, which does not matter."""
    runs = gaussian(IN_TURN, IN_TURN) | {
        "gaussian-1e-8/long": head(at_8, TWO, -8.0),
        "gaussian-1e-32/long": head(at_32, TWO, -32.0),
    }
    judged = parts(verdict(runs))
    assert (judged["K-Q"].word, judged["V-O"].word) == (word, "holds")


@pytest.mark.parametrize(
    ("sizes", "word"), [(IN_TURN, "holds"), (THREE, "holds"), (TWO, "fails"), (LATE, "no data")]
)
def test_the_aligned_teacher_is_judged_at_its_alpha(sizes: Sequence[float], word: str) -> None:
    for kq, vo, words in ((sizes, IN_TURN, [word, "holds"]), (IN_TURN, sizes, ["holds", word])):
        judged = verdict({"aligned-1e-4/full": head(kq, vo, -16.0)})
        assert [(n.network, n.part) for n in judged.networks] == [
            ("aligned", "K-Q"),
            ("aligned", "V-O"),
        ]
        assert [network.word for network in judged.networks] == words


def test_the_gaussian_teacher_needs_both_alphas() -> None:
    runs = gaussian(IN_TURN, IN_TURN)
    del runs["gaussian-1e-32/full"]
    assert [network.word for network in parts(verdict(runs)).values()] == ["no data"] * 2
    # one mark, and not one for each run, where nothing was run
    keys = [RunKey(f"gaussian-1e-{power}", kind="full") for power in (8, 32)]
    judged = judge(B6, AvailableRuns({key: {0: "was not run"} for key in keys}))
    assert [(network.network, network.word) for network in judged.networks] == [
        ("gaussian", "no data")
    ]


def test_the_table_has_a_row_for_each_alpha() -> None:
    (table,) = verdict(gaussian(CLOSE, CLOSE)).tables
    assert table.columns[2:7] == ("alpha", "risen", "in turn", "half-rise 1", "width 1")
    vo = [row[2:5] for row in table.rows if row[0] == "gaussian, V-O"]
    assert vo == [("1e-8", 4, 1), ("1e-32", 4, 4)] * 3


@pytest.mark.parametrize(
    ("sizes", "word", "value"),
    [
        ([2.0, 1.0, 0.5, 0.25], "holds", 4),
        ([2.0, 1.9, 0.5, 0.25], "fails", 1),
        # The first value would rise at 1/0.1 = 10, after the end.
        ([0.1, 0.05, 0.04, 0.03], "no data", 0),
    ],
)
def test_the_first_rule_judges_products_and_networks_apart(
    sizes: list[float], word: str, value: int
) -> None:
    ds = full_run(np.array([sizes, APART[1]]), -8.0, end=8.0)
    runs = {RunKey("teacher", kind="full"): dict.fromkeys(range(3), ds)}
    judged = judge(B6_FIRST, AvailableRuns(runs))
    (kq, vo), (table,) = judged.networks, judged.tables
    assert (kq.network, kq.part, kq.word, kq.seeds[0].value) == ("teacher", "K-Q", word, value)
    assert (vo.network, vo.part, vo.word, vo.seeds[0].value) == ("teacher", "V-O", "holds", 4)
    assert table.columns[2:4] == ("half-rise 1", "width 1")
    assert (table.rows[0][2] is None) == (word == "no data")


def test_only_full_heads_are_needed() -> None:
    keys = [
        RunKey("gaussian-1e-8", kind="full"),
        RunKey("gaussian-1e-8", kind="long"),
        RunKey("diagonal", {"log10_alpha": -8.0}),
    ]
    assert (B6.needs(keys), B6_FIRST.needs(keys)) == (keys[:2], keys[:1])


def test_rise_times_are_the_closed_forms() -> None:
    measured, expected = rise_dataset(full_run(APART, -8.0, end=8.0)), rises(APART, -8.0)
    for name in ("half_rise", "rise_10", "rise_90"):
        # recorded every 8/599 in time, linear between
        np.testing.assert_allclose(measured[name], expected[name], atol=8 / 599)
