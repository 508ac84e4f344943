"""Metrics on an opened run, against the same metrics of each spectrum on its own."""

import inspect
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
import xarray as xr

from rankscope import accessor, metrics, store
from rankscope.store import Variable, Writer

SHAPES = {"embed": (2, 5), "attn.q": (4, 3), "norm": (1, 6), "head": (3, 3), "empty": (0, 4)}
PRODUCTS = {"h0.kq": (6, 6, 2), "h1.kq": (5, 3, 4)}
STEPS, LONGEST = 5, 6
FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": "ok zero failed"}


def spectrum(step: int, row: int, width: int) -> np.ndarray:
    """Descending values; matrix 0 is zero at step 0, matrix 3 failed at step 2."""
    values = np.sort(np.random.default_rng([step, row]).random(width))[::-1].astype(np.float32)
    if (step, row) == (0, 0):
        return np.zeros_like(values)
    return np.full_like(values, np.nan) if (step, row) == (2, 3) else values


def widths(of: str) -> dict[str, int]:
    if not of.startswith("product"):
        return {name: min(shape) for name, shape in SHAPES.items()}
    inner = 2 if "change" in of else 1
    return {name: min(m, n, inner * r) for name, (m, n, r) in PRODUCTS.items()}


SPECTRA = {
    "singular_values": "matrix",
    "change_singular_values": "matrix",
    "product_singular_values": "product",
    "product_change_singular_values": "product",
}


def shape_coords(
    dim: str, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str] = "mn"
) -> dict[str, tuple[tuple[str], np.ndarray]]:
    """Labels along `dim` and one coordinate for each entry of a shape."""
    columns = zip(names, zip(*shapes.values(), strict=True), strict=True)
    sizes = {name: ((dim,), np.array(column)) for name, column in columns}
    return {dim: ((dim,), np.array(list(shapes), object)), **sizes}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    path = tmp_path_factory.mktemp("accessor") / "run"
    coords = {
        **shape_coords("matrix", SHAPES),
        "part_of": (("matrix",), np.array(["", "", "embed", "", ""], object)),
        **shape_coords("product", PRODUCTS, ("product_m", "product_n", "product_r")),
        "pair": (("pair",), np.array(["a", "b", "c"], object)),
        "k": (("k",), np.arange(1, LONGEST + 1)),
        "i": (("i",), np.arange(1, 21)),
    }
    variables = {of: Variable(("step", dim, "k")) for of, dim in SPECTRA.items()}
    variables["alignment"] = Variable(("step", "pair", "i"))
    variables["alignment_background"] = Variable(("step", "pair"))
    variables["status"] = Variable(("step", "matrix"), np.int8, attrs=FLAGS)
    diagonal = np.full((3, 20), np.nan)
    diagonal[0] = np.arange(20)
    diagonal[1, :4] = [1, 2, 3, 6]  # a pair with R = 4; the third one failed
    with Writer.create(path, coords=coords, variables=variables) as writer:
        for step in range(STEPS):
            values: dict[str, object] = {
                of: {
                    name: spectrum(step, row, width)
                    for row, (name, width) in enumerate(widths(of).items())
                }
                for of in SPECTRA
            }
            status = np.zeros(len(SHAPES), np.int8)
            status[step % len(SHAPES)] = 1
            values |= {"alignment": diagonal, "alignment_background": [0.5, 2.0, np.nan]}
            writer.append(10 * step, {**values, "status": status})
    return store.open(path)


METRICS = {
    name: function
    for name, function in vars(metrics).items()
    if inspect.isfunction(function)
    and function.__module__ == metrics.__name__
    and not name.startswith("_")
    and not name.endswith("_floor")
}


def test_every_metric_is_there_and_explained() -> None:
    assert len(METRICS) == 18
    for name in METRICS:
        method = getattr(accessor.RankscopeAccessor, name)
        assert name in dir(accessor.RankscopeAccessor)
        assert method.__name__ == name
        assert len(inspect.getdoc(method) or "") > 20


def test_effective_rank_by_hand(run: xr.Dataset) -> None:
    ranks = run.rankscope.effective_rank()
    assert ranks.dims == ("step", "matrix")
    assert ranks.name == "effective_rank"
    assert ranks["step"].to_numpy().tolist() == [0, 10, 20, 30, 40]
    assert ranks["matrix"].to_numpy().tolist() == list(SHAPES)
    S = spectrum(3, 1, 3).astype(float)
    p = S / S.sum()
    expected = math.exp(-sum(p * np.log(p)))
    assert ranks.sel(step=30, matrix="attn.q").item() == pytest.approx(expected, rel=1e-5)
    assert np.isnan(ranks.sel(step=0, matrix="embed"))
    assert np.isnan(ranks.sel(step=20, matrix="head"))
    assert np.isnan(ranks.sel(matrix="empty")).all()
    assert np.isnan(ranks).sum() == 2 + STEPS  # nowhere else: padding is cut off


@pytest.mark.parametrize("of", SPECTRA)
@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_those_of_each_spectrum(run: xr.Dataset, of: str, name: str) -> None:
    options = {"energy_rank": {"fraction": 0.8}, "numerical_rank": {"floor": 0.1}}.get(name, {})
    values = getattr(run.rankscope, name)(of=of, **options)
    assert values.dims == ("step", SPECTRA[of])
    for row, (label, width) in enumerate(widths(of).items()):
        m, n = (SHAPES if SPECTRA[of] == "matrix" else PRODUCTS)[label][:2]
        for step in range(STEPS):
            S = torch.tensor(spectrum(step, row, width))
            shape = {"m": m, "n": n, "R": max(1, min(m, n))}
            wanted = inspect.signature(METRICS[name]).parameters
            from_shape = {key: value for key, value in shape.items() if key in wanted}
            expected = METRICS[name](S, **options, **from_shape)
            value = values.isel(step=step).sel({SPECTRA[of]: label})
            np.testing.assert_allclose(value, expected, rtol=1e-5, err_msg=f"{label} at {step}")


def test_selections_and_other_orders_give_the_same(run: xr.Dataset) -> None:
    whole = run.rankscope.stable_rank()
    one = run.sel(matrix="attn.q").rankscope.stable_rank()
    assert one.dims == ("step",)
    np.testing.assert_array_equal(one, whole.sel(matrix="attn.q"))
    last = run.isel(step=-1).rankscope.stable_rank()
    np.testing.assert_array_equal(last, whole.isel(step=-1))
    cell = run.isel(step=1).sel(matrix="head").rankscope.stable_rank()
    assert cell.item() == whole.isel(step=1).sel(matrix="head").item()
    two = run.sel(matrix=["head", "embed"]).rankscope.stable_rank()
    np.testing.assert_array_equal(two, whole.sel(matrix=["head", "embed"]))
    turned = run.transpose("k", "matrix", "step", ...).rankscope.stable_rank()
    xr.testing.assert_equal(turned.transpose("step", "matrix"), whole)
    one_product = run.sel(product="h1.kq", matrix="norm").rankscope.nuclear_norm(
        of="product_change_singular_values"
    )
    np.testing.assert_allclose(one_product[3], spectrum(3, 1, 3).sum(), rtol=1e-6)


def test_long_runs_are_read_part_by_part(run: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    floor = run.rankscope.spectral_norm() / 2
    whole = run.rankscope.numerical_rank(floor=floor)
    two_steps = 2 * run["singular_values"].nbytes // STEPS
    monkeypatch.setattr(accessor, "PART_BYTES", two_steps)
    assert run["singular_values"].encoding["preferred_chunks"]["step"] > STEPS
    run = run.drop_encoding()  # small as it is, the run is a single chunk
    sizes = []

    def rank(S: np.ndarray, floor: np.ndarray) -> np.ndarray:
        sizes.append(S.nbytes)
        return metrics.numerical_rank(S, floor=floor)

    parts = run.rankscope.apply(rank, floor=floor)
    xr.testing.assert_equal(parts, whole)
    assert max(sizes) <= two_steps
    assert len(sizes) == 3 * len(set(widths("singular_values").values()))
    turned = run.transpose("matrix", ...).rankscope.apply(rank, floor=floor)
    xr.testing.assert_equal(turned.transpose("step", "matrix"), whole)
    assert not run["singular_values"]._in_memory  # nothing was kept


def test_own_functions(run: xr.Dataset) -> None:
    def gap(S: np.ndarray, *, over: float) -> np.ndarray:
        return (S[..., 0] - S[..., -1]) / over

    gaps = run.sel(matrix=["embed", "attn.q"]).rankscope.apply(gap, over=2.0)
    assert gaps.name == "gap"
    S = spectrum(4, 1, 3)
    assert gaps.sel(step=40, matrix="attn.q").item() == pytest.approx((S[0] - S[2]) / 2)


def test_spectra_that_are_not_there(run: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no spectra 'change'; it has singular_values, change_"):
        run.rankscope.effective_rank(of="change")


def test_mean_alignment_skips_padding(run: xr.Dataset) -> None:
    alignment = run.rankscope.mean_alignment()
    assert alignment.dims == ("step", "pair")
    np.testing.assert_array_equal(alignment[0], [4.5, 3.0, np.nan])


def test_relative_alignment_divides_by_the_background(run: xr.Dataset) -> None:
    ratio = run.rankscope.relative_alignment()
    assert ratio.dims == ("step", "pair") and ratio.name == "relative_alignment"
    np.testing.assert_array_equal(ratio[0], [9.0, 1.5, np.nan])
    one_pair = run.sel(pair="b", step=10).rankscope.relative_alignment()
    assert one_pair.item() == 1.5


@pytest.mark.parametrize("method", ["mean_alignment", "relative_alignment"])
def test_alignment_of_a_run_without_pairs(run: xr.Dataset, method: str) -> None:
    with pytest.raises(ValueError, match="no variable 'alignment'; track it with pairs"):
        getattr(run.drop_dims("pair").rankscope, method)()


def test_whole_matrices_are_no_part_of_another(run: xr.Dataset) -> None:
    whole = run.rankscope.whole()
    assert whole["matrix"].to_numpy().tolist() == ["embed", "attn.q", "head", "empty"]
    assert whole.sizes["product"] == run.sizes["product"]
    np.testing.assert_array_equal(
        whole.rankscope.effective_rank(),
        run.rankscope.effective_rank().sel(matrix=whole["matrix"]),
    )


def test_status_in_words(run: xr.Dataset) -> None:
    words = run.rankscope.status()
    assert words.dims == ("step", "matrix")
    assert words.isel(step=0).to_numpy().tolist() == ["zero", "ok", "ok", "ok", "ok"]


RANK_SHAPES = {"square": (48, 48), "tall": (80, 24), "vector": (1, 30)}
RANK_DTYPES = ["bfloat16", "float32", "float16"]


def rank_run(spectra: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, int]]):
    """A run in memory, of spectra over (step, matrix, k)."""
    variables = {of: (("step", "matrix", "k"), values) for of, values in spectra.items()}
    return xr.Dataset(variables, coords=shape_coords("matrix", shapes))


def padded_spectrum(W: np.ndarray, width: int = 48) -> np.ndarray:
    S = np.linalg.svd(W, compute_uv=False)
    return np.pad(S, (0, width - len(S)), constant_values=np.nan)


@pytest.fixture(scope="module")
def trained() -> xr.Dataset:
    """Weights of several types after no change, and after one of rank 1; the spectra of both."""
    generator = torch.Generator().manual_seed(0)
    S, change = np.empty((2, 2, 3, 48), np.float32)
    for row, ((m, n), name) in enumerate(zip(RANK_SHAPES.values(), RANK_DTYPES, strict=True)):
        dtype = getattr(torch, name)
        for step in range(2):
            W0 = 0.05 * torch.randn(m, n, dtype=torch.float64, generator=generator)
            left, right = (torch.randn(size, 1, generator=generator) for size in (m, n))
            W = (W0 + step * 0.05 * left.double() @ right.double().mT).to(dtype).double()
            S[step, row] = padded_spectrum(W.numpy())
            change[step, row] = padded_spectrum((W - W0.to(dtype).double()).numpy())
    spectra = {"singular_values": S, "change_singular_values": change}
    return rank_run(spectra, RANK_SHAPES).assign_coords(dtype=("matrix", RANK_DTYPES))


def test_a_rank_one_change_of_rounded_weights_has_rank_one(trained: xr.Dataset) -> None:
    ranks = trained.rankscope.numerical_rank(of="change_singular_values")
    np.testing.assert_array_equal(ranks, [[0, 0, 0], [1, 1, 1]])
    noisy = trained.rankscope.numerical_rank(of="change_singular_values", floor=0.0)
    assert noisy.sel(step=1, matrix="square") > 40
    one = trained.sel(matrix="tall").rankscope.numerical_rank(of="change_singular_values")
    np.testing.assert_array_equal(one, [0, 1])
    last = trained.isel(step=-1).rankscope.numerical_rank(of="change_singular_values")
    np.testing.assert_array_equal(last, [1, 1, 1])


def test_rounding_floor_of_each_matrix(trained: xr.Dataset) -> None:
    floors = trained.rankscope.rounding_floor()
    norms = trained.rankscope.frobenius_norm()
    assert floors.dims == ("step", "matrix")
    for (name, (m, n)), dtype in zip(RANK_SHAPES.items(), RANK_DTYPES, strict=True):
        norm = norms.sel(step=1, matrix=name).item()
        expected = metrics.rounding_floor(getattr(torch, dtype), norm, m, n)
        assert floors.sel(step=1, matrix=name).item() == pytest.approx(expected, rel=1e-5)


def test_numerical_rank_of_weights_is_numpys() -> None:
    """Deficient matrices of several shapes, rounded: max(m, n) counts, not min(m, n)."""
    generator = np.random.default_rng(0)
    shapes = {"tall": (300, 8), "wide": (8, 300), "square": (40, 40)}
    matrices = [
        (generator.normal(size=(m, 5)) @ generator.normal(size=(5, n))).astype(np.float32)
        for m, n in shapes.values()
    ]
    S = np.stack([padded_spectrum(W) for W in matrices])
    # One value between min(m, n) eps and max(m, n) eps of the largest.
    S[0, 5] = 100 * np.finfo(np.float32).eps * S[0, 0]
    ranks = rank_run({"singular_values": S[None]}, shapes).rankscope.numerical_rank()
    np.testing.assert_array_equal(ranks[0], [np.linalg.matrix_rank(W) for W in matrices])
