from operator import itemgetter

import numpy as np
import xarray as xr

from rankscope.figures.seeds import Setting, average, over_seeds, steps_of


def training(seed: int) -> xr.Dataset:
    """The loss of seed 1 lies in the middle of those of seeds 0 and 2."""
    loss = (0.9 + 0.1 * seed) * np.linspace(2.5, 0.5, 6)
    return xr.Dataset({"training_loss": ("step", loss)}, coords={"step": 10 * np.arange(6)})


def setting(**changes: object) -> Setting:
    return Setting("a network", tuple(training(seed) for seed in range(3)))._replace(**changes)


def test_the_mean_of_the_seeds_is_the_middle_one() -> None:
    mean = average(setting(), itemgetter("training_loss"))
    np.testing.assert_allclose(mean, training(1)["training_loss"])


def test_a_run_that_ended_early_is_missing_from_later_means() -> None:
    short = training(0).isel(step=slice(2))
    runs = Setting("one diverged", (short, training(1), training(2)))
    steps = steps_of([runs])
    assert steps.tolist() == training(1)["step"].to_numpy().tolist()
    by_seed = over_seeds(runs, itemgetter("training_loss"), steps)
    assert by_seed.dims == ("seed", "step")
    assert np.isnan(by_seed[0]).to_numpy().tolist() == [False, False, True, True, True, True]
    want = (training(1)["training_loss"] + training(2)["training_loss"])[2:] / 2
    np.testing.assert_allclose(by_seed.mean("seed")[2:], want)


def test_what_is_not_finite_is_left_out() -> None:
    broken = training(2).copy(deep=True)
    broken["training_loss"][3] = np.inf
    runs = (training(0), training(1), broken)
    mean = average(setting(runs=runs), itemgetter("training_loss"))
    want = (training(0)["training_loss"][3] + training(1)["training_loss"][3]) / 2
    np.testing.assert_allclose(mean[3], want)


def test_steps_that_no_seed_has_are_missing_without_a_warning() -> None:
    mean = average(setting(), itemgetter("training_loss"), np.array([0, 7]))
    assert np.isnan(mean).to_numpy().tolist() == [False, True]


def test_headings_count_seeds_name_collapsed_runs_and_say_that_means_include_them() -> None:
    assert setting().heading == "a network, 3 seeds"
    assert setting(runs=(training(0),)).heading == "a network, 1 seed"
    assert setting(collapsed=("", "", "")).heading == "a network, 3 seeds"
    all_collapsed = setting(collapsed=("why", "why not", "why")).heading
    assert all_collapsed == "a network, 3 seeds, collapsed: why"
    one_collapsed = setting(collapsed=("", "why", "")).heading
    assert one_collapsed == "a network, 1 of 3 seeds collapsed, which the mean includes: why"


def test_steps_without_a_value_are_left_out_where_asked() -> None:
    thinned = training(0)
    thinned["training_loss"][[1, 2, 4]] = np.nan
    steps = steps_of([setting(runs=(thinned,))], itemgetter("training_loss"))
    assert steps.tolist() == [0, 30, 50]
