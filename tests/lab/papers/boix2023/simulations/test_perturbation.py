import math
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from rankscope import store
from rankscope.lab.papers.boix2023.simulations.perturbation import PerturbationRun, recorded_epochs
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask, Toy
from rankscope.theory import whitened_network
from rankscope.theory.perturbation import TAU
from theory.cases import vector

TASK = DiagonalTask(d=4, tokens=3, samples=30)
RUN = PerturbationRun(TASK, log10_alpha=-32.0, stages=1, plateaus=2, epochs=200)


Stored = tuple[xr.Dataset, list[float]]  # the run, and its progress


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path, fractions = tmp_path_factory.mktemp("run") / "seed-0", list[float]()
    RUN.execute(path, seed=0, progress=fractions.append)
    return store.open(path).load(), fractions


def test_both_noises_at_random_times_then_at_new_weights(stored: Stored) -> None:
    ds, fractions = stored
    kinds, noises = ds["kind"].to_numpy().tolist(), ds["noise"].to_numpy().tolist()
    assert kinds[:4] == ["plateau"] * 4 and set(kinds[4:]) == {"newly active"}
    assert noises == ["independent", "tied"] * (len(noises) // 2)
    np.testing.assert_array_equal(ds["start_time"][::2], ds["start_time"][1::2])
    np.testing.assert_array_equal(ds["std"], [0.05 if k == "plateau" else 0.01 for k in kinds])
    assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1)


def test_what_was_negligible_is_nan_and_distances_are_of_the_rest(stored: Stored) -> None:
    ds, _ = stored
    apart = ds["perturbed_z"] - ds["unperturbed_z"]
    known = apart.notnull()
    assert bool((known.any("time") == known.all("time")).all())
    np.testing.assert_array_equal(known.all("time").sum("coordinate"), ds["perturbed"])
    assert 0 < int(ds["perturbed"].max()) < ds.sizes["coordinate"]
    start = abs(ds["unperturbed_z"].isel(time=0))
    assert float(start.min()) >= 0.99 * TAU**2
    np.testing.assert_allclose(np.sqrt((apart**2).sum("coordinate")), ds["distance"], rtol=1e-12)
    assert bool((ds["distance_all"] >= ds["distance"] * (1 - 1e-12)).all())


def test_stages_carry_their_certificates(stored: Stored) -> None:
    ds, _ = stored
    assert ds.sizes["stage"] == 2
    assert len(ds.attrs["assumptions"]) == 4
    z = torch.tensor(ds["stage_z"][1].to_numpy())
    (winner,) = z.nonzero().flatten().tolist()
    network = TASK.build(0).network
    curvature = float(network.hessian(z, [winner])[winner, 0])
    want = 4 * abs(float(z[winner])) * curvature
    assert float(ds["stage_hessian_u"][1]) == pytest.approx(want)
    assert float(ds["stage_constant"][1]) == pytest.approx(want / 2, rel=0.2)
    assert float(ds["stage_reached"][1]) < 1e-3


def test_an_epoch_is_a_part_of_the_first_e_folding(stored: Stored) -> None:
    toy = TASK.build(0)
    largest = float(toy.network.g(torch.zeros_like(toy.u0)).abs().max())
    assert stored[0].attrs["epoch_time"] == pytest.approx(0.04 / largest)


def test_epochs_are_spaced_evenly_by_decades() -> None:
    epochs = recorded_epochs(1000)
    assert epochs[:4] == (0, 1, 2, 3) and {10, 100, 1000} < set(epochs)
    assert recorded_epochs(200)[-1] == 200


class Whitened:
    """Two coordinates that do not feel each other: 2 and -1."""

    def build(self, seed: int) -> Toy:
        return Toy(whitened_network(vector(2, -1)), vector(1, 1), vector(0.5, 0.5))


def test_tied_noise_at_rest_decays_at_twice_the_optimum(tmp_path: Path) -> None:
    run = PerturbationRun(Whitened(), -200.0, stages=1, plateaus=3, epoch=0.02, epochs=100)
    run.execute(tmp_path / "run", seed=3, progress=lambda fraction: None)
    ds = store.open(tmp_path / "run")
    resting = (ds["kind"] == "plateau") & (ds["noise"] == "tied") & (ds["rising"] == 0)
    assert ds.attrs["epoch_time"] == pytest.approx(0.01)
    share = ds["distance"] / ds["distance"].isel(time=0)
    after = float(ds["time"][-1]) * ds.attrs["epoch_time"]
    for trial in np.flatnonzero(resting):
        # dz/dt = 2 z (2 - z): the deviation decays as exp(-4 t), a little bent by its size
        size = float(ds["perturbed_z"][trial, 0, 0]) / 2
        left = abs(1 / (1 + (1 / size - 1) * math.exp(-4 * after)) - 1) / abs(size - 1)
        assert float(share[trial, -1]) == pytest.approx(left, rel=0.02)
    new = ds.isel(trial=np.flatnonzero(ds["kind"] == "newly active"))
    assert new["rising"].to_numpy().tolist() == [1, 1]
