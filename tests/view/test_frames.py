"""Binary answers read back, and codes of one byte."""

import json

import numpy as np
import pytest

from rankscope.view.columns import Span, coarse_first, extremes
from rankscope.view.export import unpacked
from rankscope.view.frames import NOT_A_NUMBER, NOT_STORED, Scale, packed, plain


def test_a_frame_holds_what_was_packed() -> None:
    arrays = {
        "bytes": np.arange(5, dtype=np.uint8),
        "floats": np.array([[1.5, np.nan], [np.inf, -0.0]], np.float32),
        "none": np.zeros((0, 3), np.float64),
        "numbers": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    read, meta = unpacked(packed(arrays, {"title": "é", "low": float("nan")}))
    assert meta == {"title": "é", "low": None}
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


def test_json_holds_no_number_that_is_not_finite() -> None:
    value = {"a": [np.float32("nan"), (np.inf, 1)], "b": np.array([1.0, -np.inf])}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "a": [None, [None, 1]],
        "b": [1.0, None],
    }


@pytest.mark.parametrize("kind", ["linear", "log"])
def test_codes_span_the_scale_and_nothing_is_0(kind: str) -> None:
    values = np.array([0.001, 0.5, 10.0, np.nan, np.inf], np.float32)
    scale = Scale.of(values, kind)
    codes = scale.bytes_of(values, np.array([True, True, True, True, True]))
    assert codes.tolist()[::2] == [1, 254, 254]
    assert codes[3] == NOT_A_NUMBER
    assert scale.bytes_of(values, np.zeros(5, bool)).tolist() == [NOT_STORED] * 5
    for odd in ([], [np.nan], [0.0, 0.0], [-1.0]):
        codes = Scale.of(np.array(odd), kind).bytes_of(np.array(odd), np.ones(len(odd), bool))
        assert codes.shape == (len(odd),)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 64, 100])
def test_the_coarse_order_names_every_unit_once(count: int) -> None:
    order = coarse_first(count)
    assert sorted(order) == list(range(count))


@pytest.mark.parametrize("width", [2, 3, 7, 100, 1000])
@pytest.mark.parametrize("count", [0, 1, 2, 99, 100, 101, 5000])
def test_columns_keep_both_ends_and_the_width(count: int, width: int) -> None:
    x = np.arange(count)
    for log in (False, True):
        positions = Span(width=width, log=log).positions(x)
        assert len(positions) <= width
        if count:
            assert (positions[0], positions[-1]) == (0, count - 1)
        assert (np.diff(positions) > 0).all()


def test_an_appended_snapshot_changes_no_other_column() -> None:
    before, after = (Span(width=100).positions(np.arange(n)) for n in (5000, 5001))
    assert len(set(after) - set(before)) <= 1


@pytest.mark.parametrize("log", [False, True])
def test_buckets_cover_every_snapshot_once(log: bool) -> None:
    values = np.random.default_rng(0).random((2, 1000))
    buckets = Span(width=20, log=log).buckets(np.arange(1000))
    assert buckets is not None
    starts, ends = buckets
    assert starts[0] == 0
    assert ends[-1] == 999
    assert (starts[1:] == ends[:-1] + 1).all()
    thin = extremes(values, starts, ends)
    assert (thin.min(), thin.max()) == (values.min(), values.max())
