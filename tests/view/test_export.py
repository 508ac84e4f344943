"""Panels as tables and as lines of Python, against what the panels show."""

import ast
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankscope as rs
from rankscope import metrics
from rankscope.store import Variable, Writer
from rankscope.view import export
from rankscope.view.frames import packed
from view.viewed_runs import NAMES, Server, serving, write

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "first", seed=0)
    with serving(folder) as running:
        yield running


@pytest.fixture
def run(server: Server) -> str:
    return server.key("first")


def test_exports_hold_the_numbers_and_name_what_they_are(server: Server, run: str) -> None:
    text = server.get("export", run=run, panel="heat", metric="stable_rank").body.decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["step", *NAMES]
    exact = server.get("heat", run=run, metric="stable_rank", format="float32").array("values")
    np.testing.assert_allclose(np.array(rows[1:], float)[:, 1:].T, exact)


@pytest.mark.parametrize("panel", ["heat", "moved", "lines", "scalars", "spectra", "spectrum"])
def test_exported_lines_of_python_run(
    server: Server, run: str, panel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = server.get("export", run=run, panel=panel, file="python", row=1, **{"from": 10})
    exec(compile(answer.body.decode(), panel, "exec"), {})
    assert capsys.readouterr().out.strip()


def exported(
    server: Server, panel: str, **parameters: Any
) -> tuple[list[list[str]], dict[str, Any]]:
    """Return the table of a panel, and what its lines of Python compute."""
    table = server.get("export", panel=panel, **parameters).body.decode()
    code = server.get("export", panel=panel, file="python", **parameters).body.decode()
    computed: dict[str, Any] = {}
    exec(compile(code, panel, "exec"), computed)
    return list(csv.reader(io.StringIO(table))), computed


def test_an_exported_pair_is_its_diagonal(server: Server, run: str) -> None:
    pair = f"{NAMES[1]} > {NAMES[2]}"
    rows, computed = exported(server, "alignment", run=run, of="alignment", pair=pair)
    shown = server.get("alignment", run=run, of="alignment", pair=pair)
    assert rows[0] == ["step", "1", "2", "3", "4", "background", "mean"]
    numbers = np.array(rows[1:], float).T
    for part, name in ((numbers[1:5], "values"), (numbers[5], "background"), (numbers[6], "mean")):
        np.testing.assert_allclose(part, shown.array(name))
        np.testing.assert_allclose(computed[name], shown.array(name), rtol=1e-6)


def test_an_exported_spectrum_has_its_energy(server: Server, run: str) -> None:
    chosen = {"run": run, "of": "singular_values", "row": "1", "step": "20"}
    rows, computed = exported(server, "spectrum", **chosen)
    shown = server.get("spectrum", **chosen)
    assert rows[0] == [
        *("index", "now", "start", "change", "chance"),
        *("energy now", "energy start", "energy change"),
    ]
    k = shown.meta["k"]
    numbers = dict(zip(rows[0], np.array(rows[1:], float).T, strict=True))
    for part in ("now", "start", "change"):
        np.testing.assert_allclose(numbers[part], shown.array(part), rtol=1e-6)
        np.testing.assert_allclose(computed["spectra"][part][:k], shown.array(part), rtol=1e-6)
        energy = shown.array(f"energy_{part}")
        np.testing.assert_allclose(numbers[f"energy {part}"], energy, rtol=1e-6)
        np.testing.assert_allclose(computed["energy"][part][:k], energy, rtol=1e-5)
    np.testing.assert_allclose(numbers["chance"], shown.array("chance"), rtol=1e-6)
    np.testing.assert_allclose(computed["chance"], shown.array("chance"), rtol=1e-6)


def test_exported_spectra_have_their_percentiles(server: Server, run: str) -> None:
    chosen = {"run": run, "of": "singular_values", "row": "1"}
    rows, computed = exported(server, "spectra", **chosen)
    shown = server.get("spectra", format="float32", **chosen)
    assert rows[0][-7:] == ["0%", "5%", "25%", "50%", "75%", "95%", "100%"]
    numbers = np.array(rows[1:], float).T[-7:]
    np.testing.assert_allclose(numbers, shown.array("percentiles"), rtol=1e-6)
    np.testing.assert_allclose(computed["percentiles"], shown.array("percentiles"), rtol=1e-6)


def test_exported_pairs_are_over_their_background(server: Server, run: str) -> None:
    chosen = {"run": run, "of": "alignment", "metric": "relative_alignment"}
    rows, computed = exported(server, "alignment", **chosen)
    shown = server.get("alignment", format="float32", **chosen).array("values")
    np.testing.assert_allclose(np.array(rows[1:], float)[:, 1:].T, shown)
    np.testing.assert_allclose(computed["values"].transpose("pair", "step"), shown, rtol=1e-6)


def test_exported_heads_are_those_of_the_panel() -> None:
    with serving(RESULTS / "boix2023/vit-cifar10/vit/scale-0.1") as server:
        run = next(iter(server.library.search().places))
        chosen = {"run": run, "of": "product_singular_values", "metric": "stable_rank"}
        rows, computed = exported(server, "heads", **chosen)
        shown = server.get("heads", **chosen)
    grid = [cell["name"] for cell in shown.meta["grid"]]
    assert rows[0] == ["step", *grid]
    numbers = np.array([[cell or "nan" for cell in row] for row in rows[1:]], float)
    np.testing.assert_allclose(numbers[:, 1:].T, shown.array("values"))
    values = computed["values"].transpose("product", "step")
    assert values["product"].to_numpy().tolist() == grid
    np.testing.assert_allclose(values, shown.array("values"), rtol=1e-6)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two decays with two seeds each, one of which ends early."""
    folder = tmp_path_factory.mktemp("seeds")
    for decay in (0, 1):
        for seed in (0, 1):
            steps = range(3 * decay + seed, 60 - 20 * seed, 2)
            attrs = {"decay": decay, "seed": seed, "epoch_steps": 5 + 5 * decay}
            write(folder / f"decay-{decay}/seed-{seed}", steps, **attrs)
    with serving(folder) as running:
        yield running


def mean_rank(server: Server, key: str, grid: np.ndarray, align: str) -> np.ndarray:
    """Return the mean stable rank of a run on a grid, computed by xarray and NumPy alone."""
    ds = rs.open(server.library.place(key).path)
    steps = ds["step"].to_numpy()
    x = {
        "step": steps,
        "epoch": steps / ds.attrs["epoch_steps"],
        "loss": ds["loss"].to_numpy(),
        "fraction": steps / steps[-1],
    }[align]
    order = np.argsort(x)
    y = ds.rankscope.stable_rank().mean("matrix").to_numpy()
    return np.asarray(np.interp(grid, x[order], y[order], left=np.nan, right=np.nan))


@pytest.mark.parametrize("align", ["step", "epoch", "loss", "fraction"])
@pytest.mark.parametrize("group", ["seed", "none"])
@pytest.mark.parametrize("subtracted", [None, 3])
def test_comparisons_and_their_exports_are_what_xarray_gives(
    seeds: Server, align: str, group: str, subtracted: int | None
) -> None:
    keys = [seeds.key(f"decay-{decay}/seed-{seed}") for decay in (0, 1) for seed in (0, 1)]
    chosen: dict[str, Any] = {"run": keys, "metric": "stable_rank", "align": align, "group": group}
    if subtracted is not None:
        chosen["difference"] = keys[subtracted]
    shown = seeds.get("compare", width=4096, **chosen)
    rows, computed = exported(seeds, "compare", **chosen)
    grid = shown.array("x")
    curves = np.array([mean_rank(seeds, key, grid, align) for key in keys])
    groups = [[0, 1], [2, 3]] if group == "seed" else [[0], [1], [2], [3]]
    if subtracted is not None:
        (reference,) = (places for places in groups if subtracted in places)
        curves = curves - curves[reference].mean(0)
    np.testing.assert_allclose(computed["grid"], grid)
    table = np.array(rows[1:], float).T
    np.testing.assert_allclose(table[0], grid)
    for i, places in enumerate(groups):
        band = curves[places]
        expected = np.array([band.mean(0), band.min(0), band.max(0)])
        drawn = [shown.array(name)[i] for name in ("values", "low", "high")]
        for numbers in (drawn, table[1 + 3 * i : 4 + 3 * i]):
            np.testing.assert_allclose(numbers, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(computed["rows"][places], band, rtol=1e-5, atol=1e-6)
    code = seeds.get("export", panel="compare", file="python", **chosen).body.decode()
    (*_, loop) = (node for node in ast.parse(code).body if isinstance(node, ast.For))
    labels = [curve["label"] for curve in shown.meta["curves"]]
    assert ast.literal_eval(loop.iter) == list(zip(labels, groups, strict=True))
    wanted = None if subtracted is None else labels[1 if group == "seed" else 3]
    assert shown.meta["reference"] == wanted


@pytest.mark.parametrize("choice", [{}, {"kind": "queries"}, {"block": "layer 1"}, {"row": "1"}])
def test_exported_comparisons_are_of_the_rows_of_the_panel(
    server: Server, run: str, choice: dict[str, str]
) -> None:
    rows, computed = exported(server, "compare", run=run, metric="stable_rank", **choice)
    shown = server.get("compare", run=run, metric="stable_rank", **choice).array("values")
    np.testing.assert_allclose(np.array(rows[1:], float)[:, 1], shown[0])
    np.testing.assert_allclose(computed["rows"], shown, rtol=1e-6)


@pytest.mark.parametrize("flow", ["toy-diag/teacher-1/alpha-1e-8", "toy-full/gaussian-1e-8/full"])
def test_exported_flows_are_those_of_the_panel(flow: str) -> None:
    folder = next(path.parent for path in sorted((RESULTS / "boix2023" / flow).rglob("*.zip")))
    with serving(folder) as server:
        run = next(iter(server.library.search().places))
        rows, computed = exported(server, "theory/flow", run=run)
        shown = server.get("theory/flow", run=run, width=4096)
    names = [n for n in ("loss", "z", "y", "singular_values") if n in shown.meta["arrays"]]
    assert len(names) > 1
    assert rows[0][:2] == ["time", "loss"]
    curves = np.concatenate([np.atleast_2d(shown.array(name)) for name in names])
    table = np.array(rows[1:], float)
    np.testing.assert_array_equal(table[:, 0], shown.array("time"))
    np.testing.assert_array_equal(table[:, 1:].T, curves)
    for name in names:
        stored = computed["flow"][name].to_numpy()
        stored = stored.reshape(len(stored), -1).T
        np.testing.assert_allclose(stored.squeeze(), shown.array(name).squeeze(), rtol=1e-6)


def test_the_exported_loss_of_a_flow_stands_beside_the_staircase() -> None:
    with serving(RESULTS / "boix2023/toy-diag/teacher-1") as server:
        places = server.library.search().places
        by_name = {place.name: key for key, place in places.items()}
        run = by_name["alpha-1e-8/seed-0"]
        rows, computed = exported(server, "theory/flow", run=run, part="loss", to=6)
        one, _ = exported(server, "theory/flow", run=run, part="z")
        stairs = server.get("theory", run=run).json["staircase"]
    assert rows[0] == ["time", "loss", "Algorithm 1"]
    time, loss, staircase = np.array(rows[1:], float).T
    assert time[-1] <= 6 and len(time) > 10
    corners = zip(stairs["time"][::2], stairs["time"][1::2], stairs["loss"][::2], strict=True)
    for begin, end, expected in corners:
        np.testing.assert_array_equal(staircase[(time >= begin) & (time < end)], expected)
    np.testing.assert_array_equal(computed["flow"]["loss"], loss)
    np.testing.assert_array_equal(computed["staircase"], staircase)
    assert {name.split()[0] for name in one[0]} == {"time", "z"}


def test_a_comparison_is_cut_to_what_is_shown(seeds: Server) -> None:
    keys = [seeds.key(f"decay-0/seed-{seed}") for seed in (0, 1)]
    chosen = {"run": keys, "metric": "stable_rank", "align": "epoch", "from": 2.2, "to": 5}
    rows, computed = exported(seeds, "compare", **chosen)
    grid = [float(row[0]) for row in rows[1:]]
    assert 2.2 <= grid[0] < 2.5 and grid[-1] == 5
    np.testing.assert_allclose(computed["grid"], grid)


def test_every_value_of_a_long_spectrum_is_exported() -> None:
    with serving(RESULTS / "yunis2024/vgg/vgg/decay-0.001") as server:
        run = server.key("seed-0")
        chosen = {"run": run, "of": "singular_values", "matrix": "conv11"}
        rows, computed = exported(server, "spectra", **chosen)
    assert rows[0][1:513] == [str(index) for index in range(512)]
    known = np.array([row[513:] for row in rows[1:] if row[1]], float)
    np.testing.assert_allclose(computed["percentiles"].T, known, rtol=1e-6)


def table(server: Server, panel: str, **parameters: Any) -> list[dict[str, str]]:
    """Return the rows of an exported table."""
    text = server.get("export", panel=panel, **parameters).body.decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def printed(server: Server, panel: str, **parameters: Any) -> dict[str, Any]:
    """Return what the lines of Python of a table compute."""
    code = server.get("export", panel=panel, file="python", **parameters).body.decode()
    computed: dict[str, Any] = {}
    exec(compile(code, panel, "exec"), computed)
    return computed


@pytest.mark.parametrize("metric", ["stable_rank", "frobenius_norm"])
@pytest.mark.parametrize(("panel", "name"), [("kinds", "kind"), ("depths", "block")])
def test_exported_roll_ups_are_means_of_their_matrices(
    server: Server, run: str, panel: str, name: str, metric: str
) -> None:
    chosen = {"run": run, "metric": metric, "from": 10}
    rows = table(server, panel, **chosen)
    shown = server.get("moved", **chosen).json
    assert [row[name] for row in rows] == [group[name] for group in shown[panel]]
    ds = rs.open(server.library.place(run).path).sel(step=slice(10, None))
    values = getattr(ds.rankscope, metric)()
    scale = np.log10(values) if metric == "frobenius_norm" else values
    moved = scale.max("step") - scale.min("step")
    ranked = {row["name"]: row for row in table(server, "moved", **chosen)}
    computed = printed(server, panel, **chosen)
    np.testing.assert_allclose(computed["moved"], moved)
    for row in rows:
        members = [one for one in ranked if ranked[one][name] == row[name]]
        assert int(row["count"]) == len(members)
        assert sorted(computed["groups"][row[name]]) == sorted(members)
        mean = values.sel(matrix=members).mean("matrix").values
        expected = [mean[0], mean[-1], moved.sel(matrix=members).mean()]
        np.testing.assert_allclose(
            [float(row[key]) for key in ("first", "last", "moved")], expected, rtol=1e-5
        )


def test_exported_ranks_are_those_at_the_cursor(server: Server, run: str) -> None:
    chosen = {"run": run, "of": "singular_values", "matrix": NAMES[1], "step": "20.4"}
    rows = table(server, "ranks", **chosen)
    ds = rs.open(server.library.place(run).path).sel(matrix=NAMES[1])
    spectra = {
        "start": ds["singular_values"].isel(step=0),
        "now": ds["singular_values"].sel(step=20),
        "change": ds["change_singular_values"].sel(step=20),
    }
    computed = printed(server, "ranks", **chosen)["ranks"]
    assert list(rows[0]) == ["rank", *spectra]
    for name, S in spectra.items():
        expected = [metrics.effective_rank(S.values), metrics.stable_rank(S.values), 6]
        expected += [metrics.energy_rank(S.values, share) for share in (0.5, 0.9, 0.99)]
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, rtol=1e-6)
        np.testing.assert_allclose(computed[name], expected, rtol=1e-6)
    assert [row["rank"] for row in rows[2:4]] == ["numerical rank", "50% of the energy"]


def test_exported_stages_are_those_of_the_algorithm() -> None:
    with serving(RESULTS / "boix2023/toy-diag/teacher-1") as server:
        places = server.library.search().places
        by_name = {place.name: key for key, place in places.items()}
        run = by_name["alpha-1e-8/seed-0"]
        rows, computed = table(server, "stages", run=run), printed(server, "stages", run=run)
        predicted = rs.open(places[by_name["algorithm/seed-0"]].path)
    for name in ("time", "until", "loss", "margin"):
        stored = predicted[f"stage_{name}"].to_numpy()
        assert [row[name] for row in rows] == [str(x) if np.isfinite(x) else "" for x in stored]
    places_of_winners = predicted["stage_winner"].to_numpy()[1:]
    winners = predicted["coordinate"].to_numpy()[places_of_winners].tolist()
    assert [row["winner"] for row in rows] == ["", *winners]
    assert computed["stages"]["winner"].tolist()[1:] == winners


def test_exported_curves_are_those_at_the_cursor(server: Server, run: str) -> None:
    chosen = {"run": run, "metric": "stable_rank", "kind": "queries"}
    (row,) = table(server, "curves", step="20.4", **chosen)
    shown = server.get("compare", **chosen)
    values = shown.array("values")[0]
    assert (row["curve"], row["seeds"]) == (shown.meta["curves"][0]["label"], "1")
    assert float(row["step"]) == 20
    expected = [values[shown.array("x") == 20].item(), values[0], values[-1]]
    exported_values = [float(row[name]) for name in ("value", "first", "last")]
    np.testing.assert_allclose(exported_values, expected, rtol=1e-6)
    computed = printed(server, "curves", step="20.4", **chosen)
    np.testing.assert_allclose(computed["mean"][computed["at"]], expected[0], rtol=1e-6)


def test_exported_claims_have_their_seeds_and_evidence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(RESULTS / "yunis2024") as server:
        (study,) = server.get("papers").json["papers"]
        rows = table(server, "claims", paper="yunis2024")
        one = server.get("export", panel="claims", paper="yunis2024", claim="Y9").body.decode()
        absent = server.get("export", panel="claims", paper="yunis2024", claim="Y0")
        lines = server.get("export", panel="claims", paper="yunis2024", file="python")
    outcomes = [
        (claim["claim"], part["label"], part["verdict"], str(seed["seed"]), seed["value"])
        for claim in study["claims"]
        for part in claim["networks"]
        for seed in part["seeds"]
    ]
    names = ("claim", "network", "verdict", "seed")
    known = [row for row in rows if row["seed"]]
    assert [tuple(row[name] for name in names) for row in known] == [one[:4] for one in outcomes]
    values = [float(row["value"]) if row["value"] else None for row in known]
    assert values == [outcome[4] for outcome in outcomes]
    parts = list(csv.reader(io.StringIO(one, newline="")))
    (claim,) = (claim for claim in study["claims"] if claim["claim"] == "Y9")
    assert {row[0] for row in parts[1 : parts.index([])]} == {"Y9"}
    for evidence in claim["tables"]:
        assert evidence["columns"] in parts
    assert absent.status == 404
    exec(compile(lines.body.decode(), "claims", "exec"), {})
    printed = capsys.readouterr().out
    for claim in study["claims"]:
        for part in claim["networks"]:
            assert f"{claim['claim']} {part['label']} {part['verdict']} [" in printed
    assert str(outcomes[0][4]) in printed


def test_exported_lines_of_runs_open_those_of_the_list(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for query, count in (("first", 1), ("first nothing", 0)):
        lines = server.get("export", panel="runs", query=query, file="python").body.decode()
        exec(compile(lines, "runs", "exec"), {})
        printed = capsys.readouterr().out.splitlines()
        assert len(printed) == count
    exec(compile(server.get("export", panel="runs", file="python").body.decode(), "", "exec"), {})
    assert "'step': 30" in capsys.readouterr().out


def test_exported_runs_are_those_of_the_list(server: Server) -> None:
    (row,) = table(server, "runs")
    (shown,) = server.get("runs").json["runs"]
    assert {name: row[name] for name in ("name", "status", "seed")} == {
        name: str(shown[name]) for name in ("name", "status", "seed")
    }
    assert float(row["last_loss"]) == shown["last_loss"]
    assert (row["snapshots"], row["matrices"], row["last"]) == ("30", "5", "58")
    assert len(table(server, "runs", query="DONE seed 0")) == 1
    assert table(server, "runs", query="first nothing") == []


EVIL_NAMES = (
    *('=HYPERLINK("http://evil")', "+1,2", "a\r=cmd|' /C calc'!A0", '@"quoted", and\nmore'),
    "\n-1",
)


@pytest.mark.parametrize("panel", ["moved", "kinds", "depths", "heat"])
def test_a_spreadsheet_runs_no_name(tmp_path: Path, panel: str) -> None:
    write(tmp_path / "run", range(3), names=EVIL_NAMES)
    with serving(tmp_path) as server:
        answer = server.get("export", run=server.key("run"), panel=panel)
        shown = server.get("moved", run=server.key("run")).json
    rows = list(csv.reader(io.StringIO(answer.body.decode(), newline="")))
    assert len({len(row) for row in rows}) == 1  # no name breaks a row
    assert not any(cell.startswith(export.FORMULA) for row in rows for cell in row[:1])
    names = {"heat": rows[0][1:]}.get(panel, [row[0] for row in rows[1:]])
    expected = {"kinds": "label", "depths": "block"}.get(panel, "name")
    listed = shown[panel if panel in shown else "rows"]
    escaped = {
        f"'{one[expected]}" if one[expected][0] in "=+-@\n" else one[expected] for one in listed
    }
    assert set(names) == escaped


def test_a_folder_is_no_formula_in_the_list_of_runs(tmp_path: Path) -> None:
    write(tmp_path / '=cmd, "one"\nline', range(3))
    with serving(tmp_path) as server:
        (row,) = table(server, "runs")
    assert row["name"] == '\'=cmd, "one"\nline'
    assert row["snapshots"] == "3"


def test_an_export_waits_for_its_numbers(
    server: Server, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = iter([False, False, True])

    def slow(query: Any) -> bytes:
        return packed({"x": np.zeros(1)}, {"complete": next(parts)})

    monkeypatch.setitem(export.PANELS, "heat", slow)
    monkeypatch.setattr(export, "panel_rows", lambda name, panel: iter([[panel.meta["complete"]]]))
    answer = server.ask(f"/api/export?run={run}&panel=heat")
    assert answer.body == b"True\r\n"
    monkeypatch.setattr(export, "PATIENCE", 0.0)
    parts = iter([False, False])
    refused = server.ask(f"/api/export?run={run}&panel=heat")
    assert refused.status == 409 and "try again" in refused.json["error"]


def test_no_name_in_a_run_becomes_code_in_python_lines(tmp_path: Path) -> None:
    axis = "x=__import__('os'),row"
    coords = {axis: ((axis,), np.array(["a", "b"], dtype=object))}
    variables = {"value": Variable(("step", axis), np.dtype("float64"))}
    writer = Writer.create(tmp_path / "odd", coords=coords, variables=variables)
    writer.append(0, {"value": np.array([1.0, 2.0])})
    writer.close()
    with serving(tmp_path) as server:
        asked = {"run": server.key("odd"), "panel": "lines", "file": "python", "rows": "1"}
        lines = server.get("export", **asked).body.decode()
    names = {node.id for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Name)}
    assert names == {"rs", "run", "values", "print"}
