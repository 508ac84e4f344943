from pathlib import Path
from typing import Any

import xarray as xr

from rankscope.lab.kept_run import kept_path
from rankscope.lab.results.ends import rows
from rankscope.lab.results.ledger import Done, Ledger
from rankscope.store.archive import packed

TRAINED = Done("id", "", "", "", 9.0, "5 images/s", "", 5)
SIMULATED = Done("id", "", "", "", 9.0, "", "", 5)


def kept(
    results: Path, run: str, *, seed: int, attrs: dict[str, Any], **scalars: list[float]
) -> tuple[str, str, int]:
    key = ("paper2000/toy", run, seed)
    path = kept_path(results, *key)
    path.parent.mkdir(parents=True, exist_ok=True)
    ds = xr.Dataset({name: ("step", values) for name, values in scalars.items()}, attrs=attrs)
    path.write_bytes(packed(ds.assign_coords(step=[0, 1500])))
    return key


def test_a_run_is_a_row_with_the_range_over_its_seeds(tmp_path: Path) -> None:
    first, second = (
        kept(
            tmp_path,
            "net/a",
            seed=seed,
            attrs={},
            training_loss=[2.0, loss],
            validation_loss=[2.0, 0.5],
            validation_accuracy=[0.1, right],
        )
        for seed, loss, right in ((0, 0.25, 0.75), (1, 0.125, 0.875))
    )
    done = {first: TRAINED, ("paper2000/toy", "simulation", 0): SIMULATED, second: TRAINED}
    assert list(rows(tmp_path, Ledger(done))) == [
        ("paper2000, net/a", "0, 1", "1,500", "0.125 to 0.25", "0.5", "75.0% to 87.5%")
    ]


def test_what_ended_early_says_so_and_errors_count_against(tmp_path: Path) -> None:
    keys = [
        kept(
            tmp_path,
            f"net/{name}",
            seed=0,
            attrs={name: 1500},
            training_loss=[2.0, 1.0],
            validation_error_rate=[1.0, 0.25],
        )
        for name in ("stopped_at", "diverged_at")
    ]
    found = list(rows(tmp_path, Ledger(dict.fromkeys(keys, TRAINED))))
    assert [row[2:] for row in found] == [
        ("1,500 (settled)", "1", "-", "75.0%"),
        ("1,500 (diverged)", "1", "-", "75.0%"),
    ]
