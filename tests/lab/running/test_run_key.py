import pytest

from rankscope.lab.running.run_key import RunKey


@pytest.mark.parametrize(
    ("key", "name", "title"),
    [
        (RunKey("net", {"decay": 0.0001}), "net/decay-0.0001", "net, decay 0.0001"),
        (RunKey("net", {"labels": "true"}), "net/true-labels", "net, true labels"),
        (RunKey("net", {"log10_alpha": -1000.0}), "net/alpha-1e-1000", "net, alpha 1e-1000"),
        (RunKey("net", kind="algorithm"), "net/algorithm", "net, algorithm"),
        (RunKey("net", {"decay": 0.0, "scale": 0.3}), "net/decay-0,scale-0.3", None),
        (RunKey("net"), "net", "net"),
    ],
)
def test_paths_and_titles_derive_from_the_key(key: RunKey, name: str, title: str | None) -> None:
    assert key.name == name
    assert title is None or key.title == title


def test_equal_keys_are_equal_whatever_the_order_of_parameters() -> None:
    one, two = RunKey("net", {"a": 1, "b": 2}), RunKey("net", {"b": 2, "a": 1})
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    assert one != RunKey("net", {"a": 1, "b": 3})
