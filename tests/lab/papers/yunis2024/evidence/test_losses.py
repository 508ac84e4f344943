import pytest

from findings import losses
from lab.claims.training_runs import flat, training_run


def test_losses_at_the_largest_decay_are_those_of_y7(table, evidence) -> None:
    stored = {row[0]: row for row in evidence("yunis2024", "Y7")}
    for network, decay, *_, training, _, constant in table(losses.norms).rows:
        assert [decay, training, constant] == [stored[network][i] for i in (2, 4, 5)]


def test_norms_are_of_the_median_matrix_at_the_largest_decay(keep_sweep) -> None:
    spectra = {name: flat(9, [9, 1]) * size for name, size in {"a": 1, "b": 2, "c": 7}.items()}
    ds = training_run(spectra, scalars={"validation_loss": [1, 0.3]})
    for network in ("unet", "lstm", "lm"):
        keep_sweep(network, {0.0: training_run(), 10.0: ds})
    for _, decay, start, end, ratio, *of in losses.norms().rows:
        assert (decay, start, end, ratio) == ("10", *map(pytest.approx, (6, 2, 1 / 3)))
        assert of == pytest.approx([0.1, 0.3, 1])


def test_the_lowest_held_out_loss_is_found(keep_sweep) -> None:
    held_out = {"validation_loss": [1.0, 0.6, 0.4, 0.5, 0.7, 0.8]}
    spectra = {"fc": flat(9, [9] * 6)}
    ds = training_run(spectra, steps=range(0, 60, 10), scalars=held_out)
    keep_sweep("lm", {0.1: ds})
    found = losses.learnt_by_heart()
    assert [row[2] for row in found.rows] == [0.4, 20, 0.8, pytest.approx(0.1)]
    assert "ends at step 10" in found.title
