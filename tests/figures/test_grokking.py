import numpy as np

from figures.training_runs import training
from rankscope.figures import Setting, grokking_by_decay
from rankscope.figures.grokking import crossing


def settings() -> list[Setting]:
    return [
        Setting(f"weight decay {decay:g}", tuple(training(s, decay=decay) for s in range(3)))
        for decay in (0.0, 1.0)
    ]


def test_columns_by_decay_rows_by_what_is_measured() -> None:
    axes = grokking_by_decay(settings()).axes
    assert len(axes) == 6
    assert [each.get_title(loc="left") for each in axes[:2]] == ["weight decay 0", "weight decay 1"]
    assert {each.get_xscale() for each in axes} == {"log"}
    middle = training(1, decay=1.0)
    training_loss, validation_loss = axes[1].lines[:2]
    np.testing.assert_array_equal(training_loss.get_xdata(), middle["step"] + 1)
    np.testing.assert_allclose(training_loss.get_ydata(), middle["training_loss"])
    np.testing.assert_allclose(validation_loss.get_ydata(), middle["validation_loss"])
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), middle["validation_accuracy"])
    ranks = middle.rankscope.normalized_effective_rank().to_numpy()[:, :3]
    np.testing.assert_allclose([line.get_ydata() for line in axes[5].lines[:3]], ranks.T)


def test_crossings_are_marked_in_every_panel_once_per_seed() -> None:
    # Accuracy is (0, 1, 4, 9, 16, 25) / 25 times 0.9, 1, 1.1 over 1.1: half is passed at 16 / 25.
    steps = {crossing(training(seed)) for seed in range(3)}
    assert steps == {160}
    assert crossing(training(0).isel(step=slice(4))) is None
    for axes in grokking_by_decay(settings()).axes:
        marks = [line for line in axes.lines if line.get_linestyle() == ":"]
        assert [mark.get_xdata()[0] for mark in marks] == [161] * 3
