"""The growth of changes' ranks: what is drawn is what the table holds."""

import pandas as pd
import pytest

from rankscope.figures import change_ranks_over_steps

TABLE = pd.DataFrame(
    {
        "step": [10, 20, 100],
        "stable_rank": [1.0, 1.5, 2.5],
        "r90": [1, 2, ">4"],
        "norm": [0.1, 0.4, 0.9],
    }
)


@pytest.mark.parametrize("matrices", [1, 30])
def test_the_figure_draws_what_the_table_holds(matrices: int) -> None:
    table = pd.concat([TABLE.assign(matrix=f"fc{i}") for i in range(matrices)])
    figure = change_ranks_over_steps(table, title="a fine-tuning")
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title().split()[0] for axes in panels] == ["stable", "directions", "norm"]
    assert all(len(axes.lines) == matrices for axes in panels)
    assert list(panels[0].lines[0].get_xdata()) == [10, 20, 100]
    assert list(panels[0].lines[0].get_ydata()) == [1.0, 1.5, 2.5]
    assert list(panels[1].lines[0].get_ydata())[:2] == [1, 2]  # ">4" is no number


def test_a_table_without_the_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the table has no columns matrix, norm"):
        change_ranks_over_steps(TABLE.drop(columns="norm"))
