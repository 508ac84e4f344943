import pytest
import torch

from lab.papers.archived import by_name
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.boix2023.evidence import factors
from rankscope.lab.papers.boix2023.evidence.factors import parts_of
from rankscope.metrics import stable_rank


def test_the_parts_of_a_products_change_make_it_up() -> None:
    generator = torch.Generator().manual_seed(0)
    K0, Q0, K, Q = torch.randn(4, 2, 3, 5, generator=generator, dtype=torch.float64)
    parts = parts_of(K0, Q0, K, Q)
    assert torch.allclose(sum(parts), K.mT @ Q - K0.mT @ Q0)
    assert torch.equal(parts.linear, parts.keys + parts.queries)
    doubled = parts_of(K0, Q0, 2 * K - K0, 2 * Q - Q0)
    for one, other, factor in zip(parts, doubled, (2, 2, 4), strict=True):
        assert torch.allclose(other, factor * one)
    only_keys = parts_of(K0, Q0, K, Q0)
    assert not only_keys.queries.any() and torch.equal(only_keys.keys, parts.keys)


def test_the_quadratic_part_outgrows_the_linear_one_as_rank_falls(monkeypatch) -> None:
    monkeypatch.setattr(factors, "MOMENTS", (2, 40, 80))  # steps; hundreds take seconds
    first, _, last = by_name(factors.parts_over_time(Runs()))
    assert first["|quadratic| / |linear|"] < 0.1 and last["|quadratic| / |linear|"] > 1
    assert first["change"] == pytest.approx(first["both, linear"], abs=0.01)
    assert last["change"] == pytest.approx(last["dK^T dQ, quadratic"], abs=0.01)
    assert last["change"] < first["change"]


def test_each_number_of_a_row_is_of_its_part() -> None:
    eye = torch.eye(4, dtype=torch.float64)
    parts = factors.Parts(eye[:1].mT @ eye[:1], eye[1:3].mT @ eye[1:3], 3 * eye)
    *ranks, size = factors._row(parts)
    made = (torch.diag(torch.tensor([4.0, 4, 4, 3])), torch.eye(1), torch.eye(2), torch.eye(3))
    expected = [float(stable_rank(torch.linalg.svdvals(W.double()))) for W in made]
    assert ranks == pytest.approx([*expected, 4])
    assert size == pytest.approx(6 / 3**0.5)
