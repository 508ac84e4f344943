from lab.papers.archived import RESULTS
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.official.drawing import official_vgg


def test_the_figure_has_theirs_in_every_panel(archived: Runs) -> None:
    figure = official_vgg(archived, RESULTS)
    ranks, spectra, pairs = figure.axes
    crosses = [line for line in ranks.lines if line.get_marker() == "x"]
    assert [len(line.get_xdata()) for line in crosses] == [14, 14]
    assert sum(line.get_linestyle() == "--" for line in spectra.lines) == 3
    assert len(pairs.get_xticks()) == 5
