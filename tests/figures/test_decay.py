import numpy as np

from figures.training_runs import training
from rankscope.figures import Setting, ends_by_decay


def setting(decay: float, note: str = "") -> Setting:
    runs = (training(seed, decay=decay).isel(pair=[0, 1]) for seed in range(3))
    return Setting(f"weight decay {decay:g}", tuple(runs), note)


def test_ends_of_training_against_decay() -> None:
    upper, lower = ends_by_decay({"VGG": [setting(0.0), setting(10.0)]}).axes
    ends = [training(1, decay=decay).isel(step=-1) for decay in (0.0, 10.0)]
    ranks = [np.median(ds.rankscope.normalized_effective_rank().to_numpy()[:3]) for ds in ends]
    np.testing.assert_allclose(upper.lines[0].get_ydata(), ranks)
    a = [ds["alignment"].to_numpy() for ds in ends]
    want = np.array([np.median([each[0, :5].mean(), each[1, :10].mean()]) for each in a])
    means = [line.get_ydata() for line in lower.lines if line.get_linestyle() != "None"]
    np.testing.assert_allclose(means, [[0.02, 0.02], 2 * want, want])
    assert [label.get_text() for label in lower.get_xticklabels()] == ["0", "10"]


def test_points_are_seeds_and_hollow_where_there_is_a_note() -> None:
    upper, _ = ends_by_decay({"VGG": [setting(0.0), setting(10.0, "collapsed")]}).axes
    well, ill = (line for line in upper.lines if line.get_marker() == "o")
    assert len(well.get_xdata()) == 3
    assert well.get_markerfacecolor() != "white"
    assert ill.get_markerfacecolor() == "white"
