import numpy as np
import pytest

from lab.papers.archived import evidence, listed, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from lab.papers.yunis2024.evidence.swept_runs import swept
from rankscope.lab.papers.yunis2024.claims.truncation import Y6, quotient
from rankscope.lab.papers.yunis2024.evidence import truncation
from rankscope.lab.papers.yunis2024.runs import with_full_loss

EPOCH = {"snapshots": {"steps_per_epoch": 10}}


@pytest.mark.parametrize("network", ["vgg", "unet", "lm"])
def test_gaps_are_those_of_y6(network: str) -> None:
    rows = table(getattr(truncation, f"{network}_gaps")).rows
    means = [row for row in rows if row[1] == "mean"]
    for row, judged in zip(means, evidence("yunis2024", Y6, network=network), strict=True):
        assert row[-1] == pytest.approx(judged["Spearman"])
        assert list(row[2:-1]) == pytest.approx(listed(judged["q by decay"]), rel=5e-3)


def run(q: list[float], **options):
    """Make a run with this q; the network has a loss of 0.2 and the bottom half one of 1.2."""
    losses = {
        "full_loss": [0.2] * len(q),
        "top_loss": [0.2 + cost for cost in q],
        "bottom_loss": [1.2] * len(q),
    }
    spectra = {name: flat(10, [10] * len(q)) for name in ("conv", "fc")}
    return training_run(spectra, scalars=losses, **options)


def test_the_early_share_ends_with_epoch_120() -> None:
    steps = [0, 10, 20, 30, 1190, 1200, 1201, 1210]
    ds = run([9, 9, 9, 9, 0.1, 0.2, 0.3, 0.4], steps=steps, declaration=EPOCH)
    assert truncation.early_share(ds) == pytest.approx(0.3)
    assert truncation.early_share(run([9, 9, 0, 0], declaration=EPOCH)) is None


def test_the_bottom_half_of_equal_values_has_half_of_the_squares() -> None:
    spectra = {
        "even": flat(4, [1, 4]),
        "odd": flat(5, [1, 5]),
        "uneven": np.array([[1, 1.0], [2.0, 1.0]]),
        "last": flat(8, [1, 8]),
    }
    shares = truncation.bottom_share(training_run(spectra))
    assert shares["matrix"].to_numpy().tolist() == ["even", "odd", "uneven"]
    assert shares.values == pytest.approx([1 / 2, 2 / 5, 1 / 5])


def test_costs_are_means_over_the_second_half() -> None:
    ds = run([9, 9, 0.1, 0.3], declaration=EPOCH, steps=[0, 1, 1200, 1201])
    costs = [row[2] for row in truncation.vgg_costs(swept("vgg", {0.0: ds})).rows]
    assert costs == pytest.approx([0.2, 1.0, 0.25, 0.5])
    losses = with_full_loss(run([0.5, 0.25]))
    assert quotient(losses).values == pytest.approx([0.5, 0.25])


def test_the_cost_is_set_against_an_output_of_zero() -> None:
    assert truncation.against_zero(run([0, 0, 0.2, 0.6])) == pytest.approx(0.5)  # of 1 - 0.2
