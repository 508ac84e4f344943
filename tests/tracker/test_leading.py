"""Runs that keep leading values: against full runs of the same weights."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import rankscope as rs
from rankscope.lab.commands import report_on_runs
from rankscope.sinks.digest import heat_map
from tracker.test_neutrality import train
from tracker.tracked import take_step

FULL = ("singular_values", "change_singular_values")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(700, 720), nn.ReLU(), nn.Linear(720, 6))


def run(path, spectrum: int | str, **options: object) -> xr.Dataset:
    model = network()
    pairs = rs.discover_pairs(model, torch.zeros(2, 700))
    options = {"schedule": 1, "strict": True, "pairs": pairs, "spectrum": spectrum, **options}
    with rs.Tracker(model, path, **options) as tracker:
        for step in range(3):
            tracker.observe(step)
            take_step(model, step)
    return rs.open(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[xr.Dataset, xr.Dataset]:
    folder = tmp_path_factory.mktemp("runs")
    return run(folder / "leading", 20), run(folder / "full", "full")


def test_full_and_leading_values_are_never_in_one_variable(runs) -> None:
    leading, full = runs
    assert not any("singular_values" in str(name) for name in leading)
    assert not any("leading" in str(name) for name in full)
    assert leading.attrs["spectrum"] == 20 and full.attrs["spectrum"] == "full"


@pytest.mark.parametrize("prefix", ["", "change_"])
def test_values_norms_and_bounds(runs, prefix) -> None:
    leading, full = runs
    S = full[f"{prefix}singular_values"].fillna(0).to_numpy()
    values = leading[f"{prefix}leading_values"].fillna(0).to_numpy()
    np.testing.assert_allclose(values, S[..., :20], rtol=2e-3, atol=1e-7)
    norm, rest = np.sqrt((S**2).sum(-1)), np.sqrt((S[..., 20:] ** 2).sum(-1))
    np.testing.assert_allclose(leading[f"{prefix}leading_frobenius"], norm, rtol=1e-5)
    np.testing.assert_allclose(
        leading[f"{prefix}leading_remainder_norm"], rest, rtol=2e-4, atol=1e-6
    )
    bound = leading[f"{prefix}leading_remainder"].to_numpy()
    assert (bound >= S[..., 20] * (1 - 1e-6)).all()
    assert (bound <= 1.3 * S[..., 20] + 1e-6).all()


@pytest.mark.parametrize("of", FULL)
@pytest.mark.parametrize("metric", ["spectral_norm", "frobenius_norm", "stable_rank"])
def test_metrics_that_leading_values_suffice_for(runs, of, metric) -> None:
    leading, full = (getattr(ds.rankscope, metric)(of=of) for ds in runs)
    assert leading.name == metric and leading.dims == full.dims
    np.testing.assert_allclose(leading, full, rtol=1e-4)


def test_energy_ranks_are_those_of_all_values_as_far_as_they_reach(runs) -> None:
    leading, full = runs
    for fraction in (0.01, 0.1, 0.9):
        ranks = leading.rankscope.energy_rank(fraction=fraction).to_numpy()
        exact = full.rankscope.energy_rank(fraction=fraction).to_numpy()
        reached = exact <= leading["m"].clip(max=20).to_numpy()
        np.testing.assert_array_equal(ranks[reached], exact[reached])
        assert np.isnan(ranks[~reached]).all()


@pytest.mark.parametrize("metric", ["effective_rank", "nuclear_norm", "numerical_rank"])
def test_other_metrics_say_that_they_need_all_values(runs, metric) -> None:
    with pytest.raises(ValueError, match=f"^{metric} needs the full spectrum, .* leading 20"):
        getattr(runs[0].rankscope, metric)()
    with pytest.raises(ValueError, match="<lambda> needs the full spectrum"):
        runs[0].rankscope.apply(lambda S: S.mean(-1))


def test_alignment_uses_the_leading_directions(runs) -> None:
    leading, full = runs
    assert leading.sizes["i"] == 20 and full.sizes["i"] == 100
    # At step 2, six directions of the second matrix stand out; those of the first are noise.
    assert leading["alignment"].isel(i=slice(6)).notnull().all()
    assert (leading["alignment"].fillna(0) <= 1).all()


def test_tables_and_figures_of_a_leading_run(runs) -> None:
    table, exact = (rs.summary(ds) for ds in runs)
    for column in ("norm", "stable_rank", "change"):
        np.testing.assert_allclose(table[column], exact[column], rtol=1e-4)
    assert table["effective_rank"].isna().all()
    titles = [axes.get_title() for axes in rs.figures.overview(runs[0], "0").axes]
    assert "stable rank" in titles


def test_reports_and_dashboards_show_what_there_is(tmp_path) -> None:
    run(tmp_path / "run", 5)
    ds = rs.open(tmp_path / "run")
    moved = rs.movement(ds)
    np.testing.assert_array_equal(
        moved["last"], ds.rankscope.stable_rank()[-1].sel(matrix=moved.index.to_numpy())
    )
    digest = rs.sinks.digest(ds)
    assert "stable_rank/mean" in digest.scalars and "relative_change/mean" in digest.scalars
    assert not any("effective_rank" in name for name in digest.scalars)
    assert heat_map(ds).ndim == 3
    page = report_on_runs([tmp_path / "run"], None, command="rankscope report run").read_text()
    assert "Stable rank of every whole matrix" in page and "ffective rank of every" not in page
    for figure in (rs.figures.compare_runs, rs.figures.compare_matrices):
        assert figure({"a": ds}).axes


def test_products_and_their_changes(tmp_path) -> None:
    results = []
    for spectrum in (3, "full"):
        torch.manual_seed(0)
        model = nn.MultiheadAttention(16, 2)
        with rs.Tracker(
            model, tmp_path / str(spectrum), spectrum=spectrum, schedule=1, strict=True
        ) as tracker:
            for step in range(2):
                tracker.observe(step)
                take_step(model, step)
        results.append(rs.open(tmp_path / str(spectrum)))
    leading, full = results
    product = str(leading["product"].values[0])
    assert len(rs.figures.head_ranks_over_time(leading).axes) > 1
    assert rs.figures.product_spectra_over_time(leading, product).axes
    for name in ("product_", "product_change_"):
        np.testing.assert_allclose(
            leading[f"{name}leading_values"],
            full[f"{name}singular_values"][..., :3],
            rtol=1e-5,
            atol=1e-9,
        )
        of = f"{name}singular_values"
        np.testing.assert_allclose(
            leading.rankscope.stable_rank(of=of), full.rankscope.stable_rank(of=of), rtol=1e-5
        )


def test_training_is_bit_identical(tmp_path) -> None:
    bare, tracked = train(), train(tmp_path / "run", spectrum=4, products=True)
    assert all(torch.equal(bare[name], tracked[name]) for name in bare)


def test_directions_of_a_probe_may_be_more_than_the_values_kept(tmp_path) -> None:
    class Wide:
        def __init__(self) -> None:
            self.directions = {"0": 30}

        def __call__(self, tensors, directions) -> dict[str, float]:
            return {"width": float(directions["0"].shape[1])}

    ds = run(tmp_path / "probed", 5, probe=Wide())
    assert (ds["width"] == 30).all() and ds.sizes["r"] == 5
    S = torch.linalg.svdvals(network()[0].weight.detach().double())
    np.testing.assert_allclose(ds["leading_values"][0, 0], S[:5], rtol=2e-3)
    assert S[5] * (1 - 1e-6) <= float(ds["leading_remainder"][0, 0]) <= 1.3 * S[5]


def test_a_resumed_run_keeps_its_kind_of_spectra(tmp_path) -> None:
    run(tmp_path / "run", 7)
    with pytest.raises(ValueError, match=r"another spectrum=.*leading 7 values"):
        run(tmp_path / "run", "full", resume=True)


def test_a_matrix_that_is_not_finite_is_nan_and_named(tmp_path) -> None:
    model = network()
    with torch.no_grad():
        model[0].weight[3, 4] = float("nan")
    tracker = rs.Tracker(model, tmp_path / "run", spectrum=6, schedule=1)
    tracker.observe(0)
    with pytest.warns(RuntimeWarning, match=r"at step 0 of .*run, matrix '0' cannot be"):
        tracker.close()
    ds = rs.open(tmp_path / "run")
    assert ds["leading_values"][0, 0].isnull().all() and ds["leading_remainder"][0, 0].isnull()
    assert ds.rankscope.status()[0, 0] == "failed" and ds["leading_values"][0, 1].notnull().all()


@pytest.mark.parametrize("spectrum", [0, -3])
def test_bad_values_of_spectrum(tmp_path, spectrum) -> None:
    with pytest.raises(ValueError, match="spectrum: expected"):
        rs.Tracker(network(), tmp_path / "run", spectrum=spectrum)


def test_large_matrices_keep_leading_values_by_default(tmp_path, monkeypatch) -> None:
    from rankscope.tracker import defaults

    assert "leading_values" not in run(tmp_path / "small", "auto")
    monkeypatch.setattr(defaults, "FULL_SIDE", 200)
    assert run(tmp_path / "large", "auto").sizes["r"] == defaults.LEADING
