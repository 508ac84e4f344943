"""Every endpoint against the accessor, xarray and closed forms, asked over a real connection."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from rankscope.view.compare import label_of
from rankscope.view.quantities import METRICS
from view.viewed_runs import EVIL, NAMES, SHAPES, Server, create, fill, serving, snapshot, write

STEPS = range(0, 60, 2)
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "first", STEPS, seed=0)
    write(folder / "evil", range(5), names=(EVIL, *NAMES[1:]))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


@pytest.fixture
def run(server: Server) -> str:
    return server.key("first")


@pytest.mark.parametrize("stored", ["singular_values", "change_singular_values"])
@pytest.mark.parametrize("metric", METRICS)
def test_heat_maps_show_the_metrics_of_the_accessor(
    server: Server, folder: Path, run: str, metric: str, stored: str
) -> None:
    answer = server.get("heat", run=run, of=stored, metric=metric, format="float32")
    ds = rs.open(folder / "first")
    if metric.startswith("energy_rank"):
        share = int(metric.rpartition("_")[2]) / 100
        expected = ds.rankscope.energy_rank(of=stored, fraction=share)
    else:
        expected = getattr(ds.rankscope, metric)(of=stored)
    expected = expected.transpose("matrix", "step").to_numpy()
    np.testing.assert_array_equal(answer.array("values"), expected.astype(np.float32))
    assert answer.array("x").tolist() == list(STEPS)
    assert answer.array("rows").tolist() == list(range(5))
    assert answer.meta["complete"] is True
    finite = expected[np.isfinite(expected)]
    assert answer.meta["range"] == pytest.approx([finite.min(), finite.max()], rel=1e-6)


def test_bytes_stand_for_values_within_a_step_of_the_scale(server: Server, run: str) -> None:
    for metric in ("stable_rank", "condition_number"):
        coded = server.get("heat", run=run, metric=metric)
        exact = server.get("heat", run=run, metric=metric, format="float32").array("values")
        scale, share = coded.meta["scale"], (coded.array("values") - 1.0) / 253
        low, high = scale["low"], scale["high"]
        if scale["kind"] == "log":
            np.testing.assert_allclose(
                low * (high / low) ** share, exact, rtol=np.log(high / low) / 253
            )
        else:
            np.testing.assert_allclose(low + share * (high - low), exact, atol=(high - low) / 253)


def test_any_stored_array_can_be_shown(server: Server, run: str) -> None:
    listed = server.get("run", run=run).json
    assert {"of": "surprise", "metric": "value"}.items() <= listed["quantities"][-1].items()
    answer = server.get("heat", run=run, of="surprise", metric="value", format="float32")
    expected = np.stack([snapshot(step)["surprise"] for step in STEPS], axis=1)
    np.testing.assert_allclose(answer.array("values"), expected, rtol=1e-6)


def test_the_description_names_matrices_plainly(server: Server, run: str) -> None:
    described = server.get("run", run=run).json
    rows = described["axes"]["matrix"]["rows"]
    assert [row["label"] for row in rows] == [
        *("embedding", "queries, layer 1", "keys, layer 1", "queries, layer 2", "output")
    ]
    assert [(row["m"], row["n"]) for row in rows] == list(SHAPES)
    assert described["axes"]["pair"]["rows"][0]["label"] == "queries > keys, layer 1"
    assert [scalar["name"] for scalar in described["scalars"]] == ["loss", "rate"]
    assert (described["first"], described["last"], described["snapshots"]) == (0, 58, 30)


def test_columns_are_chosen_by_interval_width_and_spacing(server: Server, run: str) -> None:
    inside = server.get("heat", run=run, **{"from": 10, "to": 20}).array("x")
    assert inside.tolist() == [10, 12, 14, 16, 18, 20]
    for spacing in ("linear", "log"):
        answer = server.get("heat", run=run, width=8, spacing=spacing)
        x = answer.array("x").tolist()
        assert len(x) <= 8
        assert (x[0], x[-1]) == (0, 58)
        assert [STEPS[place] for place in answer.array("positions")] == x
    assert server.get("heat", run=run, **{"from": 1000}).array("x").size == 0


def test_rows_are_chosen_by_number_and_name(server: Server, run: str) -> None:
    numbered = server.get("heat", run=run, rows="4,0-1", format="float32")
    named = server.get("heat", run=run, matrix=["output", NAMES[0], NAMES[1]], format="float32")
    assert numbered.array("rows").tolist() == [4, 0, 1]
    np.testing.assert_array_equal(numbered.array("values"), named.array("values"))
    kinds = server.get("heat", run=run, order="kind").array("rows").tolist()
    assert kinds == [0, 1, 3, 2, 4]


def test_lines_of_many_snapshots_keep_their_extremes(server: Server, run: str) -> None:
    whole = server.get("lines", run=run, rows="0")
    thin = server.get("lines", run=run, rows="0", width=10)
    assert thin.meta["decimated"] is True
    assert thin.array("values").shape[1] <= 10
    for extreme in (np.min, np.max):
        assert extreme(thin.array("values")) == extreme(whole.array("values"))


def test_scalars_are_those_that_were_logged(server: Server, run: str) -> None:
    answer = server.get("scalars", run=run)
    assert answer.meta["names"] == {"step": ["loss", "rate"]}
    loss = answer.array("values:step")[0]
    np.testing.assert_allclose(loss, [3 / (1 + step) for step in STEPS])
    thin = server.get("scalars", run=run, width=6).array("values:step")[0]
    assert (thin.min(), thin.max()) == (loss.min(), loss.max())


@pytest.mark.parametrize("row", range(5))
def test_all_singular_values_of_a_matrix(server: Server, run: str, row: int) -> None:
    answer = server.get("spectra", run=run, row=row, format="float32")
    k = min(SHAPES[row])
    stored = np.stack([snapshot(step)["singular_values"][row, :k] for step in STEPS], axis=1)
    np.testing.assert_array_equal(answer.array("values"), stored)
    percentiles = answer.array("percentiles")
    np.testing.assert_array_equal(percentiles[-1], stored.max(0))
    np.testing.assert_array_equal(percentiles[0], stored.min(0))
    assert answer.meta["scale"]["kind"] == "log"
    thin = server.get("spectra", run=run, row=row, height=2).array("index").tolist()
    assert thin == [0, k - 1]


def test_one_spectrum_beside_start_change_and_chance(
    server: Server, folder: Path, run: str
) -> None:
    answer = server.get("spectrum", run=run, matrix=NAMES[1], step=21)
    step = answer.meta["x"]
    assert step == 20
    np.testing.assert_array_equal(answer.array("now"), snapshot(20)["singular_values"][1])
    np.testing.assert_array_equal(answer.array("start"), snapshot(0)["singular_values"][1])
    np.testing.assert_array_equal(answer.array("change"), snapshot(20)["change_singular_values"][1])
    part = rs.open(folder / "first").sel(step=[20], matrix=[NAMES[1]])
    for name, stored in (("now", "singular_values"), ("change", "change_singular_values")):
        ranks = answer.meta["ranks"][name]
        metrics = part.rankscope
        assert ranks["effective"] == pytest.approx(metrics.effective_rank(of=stored).item())
        assert ranks["numerical"] == metrics.numerical_rank(of=stored).item()
        assert ranks["90"] == metrics.energy_rank(of=stored, fraction=0.9).item()
    energy = answer.array("energy_now")
    assert energy[-1] == pytest.approx(1)
    assert (np.diff(energy) >= 0).all()
    floor = part.rankscope.rounding_floor().item()
    assert answer.meta["noise"]["rounding_floor"] == pytest.approx(floor)
    assert answer.meta["status"] == "ok"


def test_what_moved_most_comes_first(server: Server, folder: Path, run: str) -> None:
    answer = server.get("moved", run=run, metric="effective_rank").json
    values = rs.open(folder / "first").rankscope.effective_rank()
    amount = (values.max("step") - values.min("step")).to_series().sort_values(ascending=False)
    assert [row["name"] for row in answer["rows"]] == list(amount.index)
    assert [row["moved"] for row in answer["rows"]] == pytest.approx(list(amount), rel=1e-5)
    queries = next(kind for kind in answer["kinds"] if kind["kind"] == "queries")
    assert queries["count"] == 2
    assert [depth["block"] for depth in answer["depths"]] == [
        *("embedding", "layer 1", "layer 2", "output")
    ]
    assert all(len(row["spark"]) == len(answer["x"]) for row in answer["rows"])


def test_alignment_of_pairs_and_of_one(server: Server, folder: Path, run: str) -> None:
    expected = rs.open(folder / "first").rankscope.relative_alignment()
    heat = server.get("alignment", run=run, format="float32")
    np.testing.assert_array_equal(heat.array("values")[0], expected.to_numpy()[:, 0])
    one = server.get("alignment", run=run, row=0)
    stored = np.stack([snapshot(step)["alignment"][0] for step in STEPS], axis=1)
    np.testing.assert_allclose(one.array("values"), stored, rtol=1e-6)
    np.testing.assert_allclose(one.array("mean"), stored.mean(0), rtol=1e-6)
    assert one.meta["chance"] == 0.3


def test_runs_are_compared_over_seeds_and_as_differences(
    server: Server, folder: Path, run: str
) -> None:
    other = server.key("evil")
    answer = server.get("compare", run=[run, other], metric="stable_rank", group="none")
    expected = rs.open(folder / "first").rankscope.stable_rank().mean("matrix").to_numpy()
    grid = answer.array("x").tolist()
    places = [grid.index(step) for step in STEPS]
    np.testing.assert_allclose(answer.array("values")[0][places], expected, rtol=1e-6)
    assert np.isnan(answer.array("values")[1][-1])  # the other run ended before
    difference = server.get("compare", run=[run, other], difference=run, metric="stable_rank")
    np.testing.assert_array_equal(difference.array("values")[0], 0)
    by_loss = server.get("compare", run=[run], align="loss").array("x")
    assert (np.diff(by_loss) > 0).all()
    assert server.get("compare", run=[run], align="epoch").meta["unavailable"][0]["run"] == run


def test_every_run_of_a_sweep_is_compared_under_its_title(tmp_path: Path) -> None:
    for seed in range(30):
        write(tmp_path / f"seed-{seed}", range(2), seed=seed)
    with serving(tmp_path) as server:
        keys = [run["id"] for run in server.get("runs").json["runs"]]
        (curve,) = server.get("compare", run=keys).meta["curves"]
        assert curve["count"] == 30
    titled = {"network": "vit", "network_title": "ViT, CIFAR-10", "variant": "scale-0.1"}
    assert label_of(titled, 3) == "ViT, CIFAR-10, scale 0.1"
    assert label_of(titled | {"seed": 2}, 1) == "ViT, CIFAR-10, scale 0.1, seed 2"


def test_kept_runs_are_compared_by_the_epochs_they_declare(tmp_path: Path) -> None:
    for name, length in (("short", 4), ("long", 8)):
        write(tmp_path / name, STEPS, declaration={"snapshots": {"steps_per_epoch": length}})
    for name, declared in (("no", {}), ("odd", {"snapshots": 3}), ("none", {"snapshots": None})):
        write(tmp_path / name, range(3), declaration=declared)
    with serving(tmp_path) as server:
        runs = [server.key(name) for name in ("short", "long", "no", "odd", "none")]
        answer = server.get("compare", run=runs, align="epoch", metric="stable_rank", group="none")
    steps = np.array(STEPS)
    assert answer.meta["x_label"] == "epoch"
    assert answer.array("x").tolist() == np.union1d(steps / 4, steps / 8).tolist()
    assert [lack["run"] for lack in answer.meta["unavailable"]] == runs[2:]
    short, long = answer.array("values")
    same = np.isin(answer.array("x"), steps / 4)
    expected = rs.open(tmp_path / "short").rankscope.stable_rank().mean("matrix")
    np.testing.assert_allclose(short[same], expected, rtol=1e-6)
    assert np.isnan(long[-1]) and np.isfinite(long[: len(STEPS)]).all()


def test_names_from_files_are_text(server: Server) -> None:
    run = server.key("evil")
    described = server.get("run", run=run)
    assert described.headers["content-type"] == "application/json"
    assert described.json["axes"]["matrix"]["rows"][0]["name"] == EVIL
    answer = server.get("lines", run=run, matrix=EVIL)
    assert answer.meta["names"] == [EVIL]
    code = server.get("export", run=run, panel="lines", file="python", matrix=EVIL).body.decode()
    assert repr(EVIL) in code


MISTAKES = {
    400: (
        *("width=1", "width=5000", "width=nan", "from=x", "from=inf", "rows=x", "rows=9999999999"),
        *("format=exe", "spacing=x", "order=x", "metric=stable_rank&low=nan&high=1"),
        "metric=spectral_norm&low=-1&high=1",
    ),
    404: ("rows=0-99", "matrix=nobody", "of=nothing", "metric=__class__", "of=status"),
}


@pytest.mark.parametrize(
    ("query", "status"), [(query, status) for status in MISTAKES for query in MISTAKES[status]]
)
def test_mistakes_get_one_sentence(server: Server, run: str, query: str, status: int) -> None:
    answer = server.ask(f"/api/heat?run={run}&{query}")
    assert answer.status == status
    assert len(answer.json["error"].splitlines()) == 1


def test_an_unchanged_answer_is_not_sent_again(server: Server, run: str) -> None:
    tag = server.get("heat", run=run).headers["etag"]
    again = server.ask(f"/api/heat?run={run}", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert server.ask(f"/api/heat?run={run}&width=9", headers={"If-None-Match": tag}).status == 200


def test_a_run_that_grows_shows_its_new_snapshots(tmp_path: Path) -> None:
    with create(tmp_path / "live") as writer, serving(tmp_path) as server:
        fill(writer, range(40))
        run = server.key("live")
        assert server.get("runs").json["runs"][0]["status"] == "running"
        before = server.get("version", run=run).json
        tag = server.get("heat", run=run).headers["etag"]
        fill(writer, range(40, 45))
        after = server.get("version", run=run).json
        assert after["runs"][run] != before["runs"][run]
        assert after["version"] > before["version"]
        answer = server.ask(f"/api/heat?run={run}", headers={"If-None-Match": tag})
        assert answer.status == 200
        shown = server.get("heat", run=run, format="float32")
        assert shown.array("x").tolist() == list(range(45))
        expected = rs.open(tmp_path / "live").rankscope.normalized_effective_rank()
        np.testing.assert_array_equal(shown.array("values"), expected.T.astype(np.float32))


def test_a_run_that_went_back_shows_what_it_is_now(tmp_path: Path) -> None:
    write(tmp_path / "run", range(20))
    with serving(tmp_path) as server:
        run = server.key("run")
        server.get("heat", run=run)
        from rankscope.store import Writer

        with Writer.resume(tmp_path / "run") as writer:
            writer.rewind(10)
            for step in range(10, 20):
                writer.append(step, snapshot(step + 1000), scalars={"loss": 5.0, "rate": 0.1})
        shown = server.get("heat", run=run, format="float32").array("values")
        expected = rs.open(tmp_path / "run").rankscope.normalized_effective_rank()
        np.testing.assert_array_equal(shown, expected.T.astype(np.float32))


def test_damage_is_marked_and_the_rest_is_shown(tmp_path: Path) -> None:
    broken = write(tmp_path / "broken", range(20)) / "zarr.json"
    broken.write_bytes(broken.read_bytes()[:-40])
    half = write(tmp_path / "half", range(20))
    file = next(path for path in (half / "singular_values").iterdir() if path.name != "zarr.json")
    data = bytearray(file.read_bytes())
    data[10] ^= 255
    file.write_bytes(data)
    write(tmp_path / "whole", range(20))
    with serving(tmp_path) as server:
        rows = {row["name"]: row for row in server.get("runs").json["runs"]}
        assert rows["broken"]["status"] == "damaged"
        assert "damaged" in rows["broken"]["error"]
        assert rows["whole"]["error"] is None
        assert server.get("heat", run=server.key("broken")).status == 409
        assert "damaged" in server.get("heat", run=server.key("half")).meta["damage"]
        assert server.get("scalars", run=server.key("half")).status == 200
        assert server.get("heat", run=server.key("whole")).meta["damage"] is None


def test_a_fault_of_the_server_is_one_sentence(
    server: Server, run: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(key: str) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(server.library, "open", fail)
    answer = server.ask(f"/api/heat?run={run}")
    assert (answer.status, answer.json["error"]) == (500, "the server failed here (RuntimeError)")
    assert "content-security-policy" in answer.headers


def test_a_flow_comes_with_its_stages() -> None:
    results = Path(__file__).parents[2] / "results/boix2023/toy-diag/teacher-1"
    with serving(results) as server:
        run = server.key("alpha-1e-8/seed-0")
        told = server.get("theory", run=run).json
        flow = server.get("theory/flow", run=run)
    stored = rs.open(results / "alpha-1e-8/seed-0.zarr.zip")
    stages = rs.open(results / "algorithm/seed-0.zarr.zip")
    np.testing.assert_allclose(flow.array("z"), stored["z"].T.astype(np.float32))
    np.testing.assert_array_equal(flow.array("time"), stored["time"])
    assert told["alphas"][told["selected"]]["log10_alpha"] == -8
    assert [stage["loss"] for stage in told["stages"]] == stages["stage_loss"].values.tolist()
    assert told["marks"][0]["time"] == stages["stage_time"][1].item()
