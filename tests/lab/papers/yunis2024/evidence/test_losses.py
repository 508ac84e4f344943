import pytest

from lab.papers.archived import by_name, evidence, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept, together
from rankscope.lab.papers.yunis2024.claims.high_decay import Y7
from rankscope.lab.papers.yunis2024.evidence import losses


def test_losses_at_the_largest_decay_are_those_of_y7() -> None:
    judged = {row["network"]: list(row.values()) for row in evidence("yunis2024", Y7)}
    for row in by_name(table(losses.norms)):
        _, _, decay, _, final, constant, *_ = judged[row["network"]]
        assert (row["decay"], row["training loss"]) == (decay, final)
        assert row["constant predictor's"] == constant


def test_norms_are_of_the_median_matrix_at_the_largest_decay() -> None:
    spectra = {name: flat(9, [9, 1]) * size for name, size in {"a": 1, "b": 2, "c": 7}.items()}
    ds = training_run(spectra, scalars={"validation_loss": [1, 0.3]})
    networks = ("unet", "lstm", "lm")
    runs = together(*(swept(network, {0.0: training_run(), 10.0: ds}) for network in networks))
    for _, decay, start, end, ratio, *reached in losses.norms(runs).rows:
        assert (decay, start, end, ratio) == ("10", *map(pytest.approx, (6, 2, 1 / 3)))
        assert reached == pytest.approx([0.1, 0.3, 1])


def test_the_lowest_held_out_loss_is_found() -> None:
    held_out = {"validation_loss": [1.0, 0.6, 0.4, 0.5, 0.7, 0.8]}
    spectra = {"fc": flat(9, [9] * 6)}
    ds = training_run(spectra, steps=range(0, 60, 10), scalars=held_out)
    made = losses.lm_losses(swept("lm", {0.1: ds}))
    assert [row[2] for row in made.rows] == [0.4, 20, 0.8, pytest.approx(0.1)]
    assert "ends at step 10" in made.title
