"""Choice of ranks against all possible choices."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.lora.ranks import (
    VLLM,
    Rounding,
    choose_ranks,
    parameters,
    rounded_up,
    total_squared_error,
)
from rankscope.lora.spectrum import Spectrum


def spectrum(*values: float, m: int = 10, n: int = 10, **others: float) -> Spectrum:
    S = torch.tensor(sorted(values, reverse=True), dtype=torch.float64)
    return Spectrum(S, m, n, **others)


cases = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        lambda values, m, n: spectrum(*values, m=m, n=n),
        st.lists(st.floats(0.01, 10), min_size=1, max_size=4),
        st.integers(4, 12),
        st.integers(4, 12),
    ),
    min_size=1,
    max_size=3,
)


def least_errors(spectra: dict[str, Spectrum]) -> dict[int, float]:
    """Least total squared error by size, over all choices of ranks."""
    least: dict[int, float] = {}
    for choice in product(*(range(len(s.S) + 1) for s in spectra.values())):
        ranks = dict(zip(spectra, choice, strict=True))
        size, error = parameters(spectra, ranks), total_squared_error(spectra, ranks)
        least[size] = min(error, least.get(size, error))
    return least


@settings(max_examples=60, deadline=None)
@given(cases, st.integers(1, 200))
def test_no_choice_beats_the_budget_where_it_lands(
    spectra: dict[str, Spectrum], budget: int
) -> None:
    """It is optimal at every size where the next best direction still fitted.

    Elsewhere it is at most one direction away from the best choice of the whole budget.
    """
    ranks = choose_ranks(spectra, budget=budget)
    size, error = parameters(spectra, ranks), total_squared_error(spectra, ranks)
    assert size <= budget
    least = least_errors(spectra)
    steps = sorted(
        ((float(s) ** 2 / x.size, name) for name, x in spectra.items() for s in x.S), reverse=True
    )
    landed, taken, gap = 0, dict.fromkeys(spectra, 0), 0.0
    for worth, name in steps:
        if landed + spectra[name].size > budget:
            gap = (budget - landed) * worth  # more than that no use of the rest can gain
            break
        landed += spectra[name].size
        taken[name] += 1
    best_there = min(e for s, e in least.items() if s <= landed)
    assert total_squared_error(spectra, taken) <= best_there + 1e-9
    assert error <= total_squared_error(spectra, taken) + 1e-9
    if size == landed:
        assert error == pytest.approx(best_there, abs=1e-9)
    assert error <= min(e for s, e in least.items() if s <= budget) + gap + 1e-9


@settings(max_examples=60, deadline=None)
@given(cases, st.integers(1, 4))
def test_a_budget_is_never_worse_than_uniform_ranks(
    spectra: dict[str, Spectrum], rank: int
) -> None:
    uniform = {name: min(rank, len(s.S)) for name, s in spectra.items()}
    size = parameters(spectra, uniform)
    chosen = choose_ranks(spectra, budget=size)
    smallest = max(s.size for s in spectra.values())
    # The size of one direction may be left over where sizes differ.
    more = choose_ranks(spectra, budget=size + smallest)
    assert total_squared_error(spectra, more) <= total_squared_error(spectra, uniform) + 1e-9
    if len({s.size for s in spectra.values()}) == 1:
        error = total_squared_error(spectra, uniform)
        assert total_squared_error(spectra, chosen) <= error + 1e-9


def test_rules() -> None:
    spectra = {"a": spectrum(4, 3, 0.1), "b": spectrum(1, 1, 1)}
    assert choose_ranks(spectra, energy=0.6) == {"a": 1, "b": 2}
    assert choose_ranks(spectra, error=0.61) == {"a": 1, "b": 2}
    assert choose_ranks(spectra, energy=0.99, max_rank=1) == {"a": 1, "b": 1}
    assert choose_ranks(spectra, max_rank=2) == {"a": 2, "b": 2}
    assert choose_ranks(spectra) == {"a": 3, "b": 3}
    # 16, 9, 1, 1 are worth most.
    assert choose_ranks(spectra, budget=80) == {"a": 2, "b": 2}


def test_noise_limits_every_rule() -> None:
    spectra = {"a": spectrum(4, 3, 0.1, rounding=1.0), "b": spectrum(0.5, 0.4, rounding=1.0)}
    assert choose_ranks(spectra, noise=True) == {"a": 2, "b": 0}
    assert choose_ranks(spectra, noise=True, energy=1.0) == {"a": 2, "b": 0}
    assert choose_ranks(spectra, noise=True, budget=1000) == {"a": 2, "b": 0}


@pytest.mark.parametrize(("round_to", "allowed"), [(8, {0, 8, 16, 24}), ("vllm", {0, *VLLM})])
def test_rounding(round_to: Rounding, allowed: set[int]) -> None:
    spectra = {
        "a": spectrum(*(0.9**k for k in range(20)), m=40, n=30),
        "b": spectrum(*(0.5**k for k in range(20)), m=20, n=20),
    }
    for rules in ({"energy": 0.9}, {"budget": 1000}, {"max_rank": 16}, {"error": 0.05}):
        ranks = choose_ranks(spectra, round_to=round_to, **rules)
        assert set(ranks.values()) <= allowed and any(ranks.values())
        plain = choose_ranks(spectra, **rules)
        if "budget" in rules:
            assert parameters(spectra, ranks) <= 1000
        else:
            assert all(ranks[name] >= plain[name] for name in spectra)
    assert [rounded_up(rank, "vllm") for rank in (0, 1, 2, 9, 200, 600)] == [0, 1, 8, 16, 256, 512]


@pytest.mark.parametrize(("round_to", "largest"), [(1, 20), (8, 16), ("vllm", 16)])
def test_no_rank_is_rounded_above_the_largest(round_to: Rounding, largest: int) -> None:
    spectra = {"w": spectrum(*(0.99**k for k in range(30)), m=40, n=30)}
    for rules in ({}, {"energy": 0.99}, {"budget": 10_000}):
        assert choose_ranks(spectra, max_rank=20, round_to=round_to, **rules) == {"w": largest}
    assert choose_ranks(spectra, max_rank=600, round_to="vllm") == {"w": 32}


def test_too_few_known_directions_are_not_enough_by_silence() -> None:
    spectra = {"w": spectrum(3, 1, rest=5.0)}
    with pytest.raises(ValueError, match=r"'w': 2 directions hold less than 0\.9"):
        choose_ranks(spectra, energy=0.9)
    assert choose_ranks(spectra, energy=0.9, max_rank=2) == {"w": 2}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"energy": 0.9, "budget": 10}, "give one of them"),
        ({"energy": 1.5}, "energy is a share"),
        ({"error": -0.1}, "error is relative"),
        ({"max_rank": 0}, "max_rank: expected 1"),
        ({"budget": 0}, "budget is a number of parameters"),
        ({"round_to": 0}, "rounded to a multiple"),
        ({"round_to": 8, "max_rank": 7}, "largest rank of 7 leaves none"),
    ],
)
def test_impossible_rules(rules: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_ranks({"w": spectrum(1.0)}, **rules)
