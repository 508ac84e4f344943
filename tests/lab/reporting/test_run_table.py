import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.reporting.run_table import ORIGIN, origin_table, records_of, run_table
from rankscope.lab.running.run_key import RunKey

KEY = RunKey("net", {"decay": 0.1}, experiment="p/e")
TRAINED = xr.Dataset(
    {
        "training_loss": ("step", [2.0, 2.0]),
        "validation_accuracy": ("step", [0.1, 0.25]),
        "validation_loss": ("step", [2.0, 1.5]),
    },
    attrs={"constant_loss": 2.0, "wall_seconds": 12.0, "decay": 0.1, "parameters": 12345}
    | dict.fromkeys(ORIGIN, "x"),
)
RUNS = AvailableRuns({KEY: {0: TRAINED, 1: "was not run"}})


def test_a_row_says_how_training_ended_or_why_it_is_missing() -> None:
    table = run_table(records_of(RUNS))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows[0]["run"] == "net, decay 0.1" and rows[0]["parameters"] == "12,345"
    assert rows[0]["validation accuracy"] == "25.0%" and rows[0]["validation loss"] == "1.5"
    assert rows[0]["collapsed"].startswith("training loss 2") and rows[0]["seconds"] == "12"
    assert rows[1]["missing"] == "was not run" and rows[1]["training loss"] == ""


def test_origins_are_counted_over_whole_runs() -> None:
    assert origin_table(records_of(RUNS)).rows[0] == ("rankscope", "x (1 runs)")
