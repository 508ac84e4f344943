"""Values that are missing: what is not stored is told from what is not a number, and from zero."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.view.frames import NOT_A_NUMBER, NOT_STORED
from rankscope.view.gaps import broken_from
from view.archived_site import address, exported
from view.browsing import Watched, chromium, watched
from view.viewed_runs import NAMES, Server, create, serving, snapshot

STEPS = range(40)
SPARED, BROKEN, ZERO = range(10, 20), range(30, 40), 5  # steps
ODD = 1  # row of the matrix that is zero once, and breaks
NAN = float("nan")


def write(path: Path) -> None:
    """Write a run that stores no spectra at some steps, and a matrix that is zero, then breaks."""
    with create(path) as writer:
        for step in STEPS:
            values, status = snapshot(step), np.zeros(5, np.int8)
            if step in SPARED:
                values["singular_values"] = np.full((5, 6), NAN, np.float32)
            if step == ZERO:
                values["singular_values"][ODD, :6] = 0
                status[ODD] = 1
            if step in BROKEN:
                values["singular_values"][ODD] = NAN
                status[ODD] = 1
            loss = NAN if step in BROKEN else 1 / (1 + step)
            scalars = {"loss": loss, "rate": 0.1}
            if step % 8 == 0:
                scalars["validation_loss"] = 1.0
            writer.append(step, values | {"status": status}, scalars=scalars)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gaps")
    write(folder / "gaps")
    with serving(folder) as running:
        yield running


@pytest.fixture
def run(server: Server) -> str:
    return server.key("gaps")


def test_a_heat_map_tells_what_is_missing(server: Server, run: str) -> None:
    codes = server.get("heat", run=run, metric="stable_rank").array("values")
    assert set(codes[ODD, list(SPARED)]) == {NOT_STORED}
    assert set(codes[ODD, [ZERO, *BROKEN]]) == {NOT_A_NUMBER}
    plain = [step for step in STEPS if step not in SPARED and step != ZERO and step < 30]
    assert not {NOT_STORED, NOT_A_NUMBER} & set(codes[ODD, plain])
    floats = server.get("heat", run=run, metric="stable_rank", format="float32")
    np.testing.assert_array_equal(floats.array("stored") == 0, codes == NOT_STORED)
    norms = server.get("heat", run=run, metric="frobenius_norm", format="float32").array("values")
    assert norms[ODD, ZERO] == 0


def test_lines_spectra_and_exports_tell_it_too(server: Server, run: str) -> None:
    lines = server.get("lines", run=run, metric="stable_rank", matrix=NAMES[ODD])
    spectra = server.get("spectra", run=run, matrix=NAMES[ODD], format="float32")
    for stored in (lines.array("stored")[0], spectra.array("stored")):
        assert np.flatnonzero(stored == 0).tolist() == list(SPARED)
    text = server.get("export", panel="heat", run=run, metric="stable_rank").body.decode()
    cells = [line.split(",")[1 + ODD] for line in text.splitlines()[1:]]
    assert [cells[step] for step in (SPARED[0], ZERO, BROKEN[0])] == ["", "nan", "nan"]
    ranks = server.get("spectrum", run=run, matrix=NAMES[ODD], step=BROKEN[0]).meta["ranks"]
    assert set(ranks["now"].values()) == {None}


def test_of_a_matrix_with_its_largest_value_alone_no_rank_is_known(tmp_path: Path) -> None:
    with create(tmp_path / "heads") as writer:
        for step in range(4):
            values = snapshot(step)
            values["singular_values"][ODD, 1:] = NAN
            writer.append(step, values, scalars={"loss": 1.0})
    with serving(tmp_path) as server, chromium() as browser:
        run = server.key("heads")
        stored = server.get("heat", run=run, metric="stable_rank", format="float32").array("stored")
        assert np.flatnonzero(stored.all(axis=1) == 0).tolist() == [ODD]
        spectra = server.get("spectra", run=run, matrix=NAMES[ODD], format="float32")
        assert np.isnan(spectra.array("percentiles")).all()
        spectrum = server.get("spectrum", run=run, matrix=NAMES[ODD]).meta
        assert spectrum["ranks"]["now"] == spectrum["ranks"]["start"] == {}
        assert (spectrum["k"], spectrum["whole_k"]) == (1, 6)
        with watched(browser, address(server)) as site:
            page = site.go(view="matrix", run=run, matrix=NAMES[ODD])
            site.settled()
            for panel, words in (
                ("energy", "Shares of the energy need all singular values."),
                ("percentiles", "Stored: the 1 largest of 6."),
                ("metric", "No values of normalised effective rank are stored here."),
                ("facts", "Only leading values are stored"),
            ):
                page.locator(f'[data-panel="{panel}"]').get_by_text(words).wait_for()


def test_a_ranking_uses_what_is_stored_and_says_what_broke(server: Server, run: str) -> None:
    moved = server.get("moved", run=run, metric="stable_rank").json
    assert not set(SPARED) & set(moved["x"])
    rows = {row["name"]: row for row in moved["rows"]}
    assert rows[NAMES[ODD]]["broke"] == BROKEN[0]
    assert rows[NAMES[0]]["broke"] is None


def test_events_are_of_what_is_stored(server: Server, run: str) -> None:
    events = [event for event in server.get("events", run=run).json["events"]]
    broken = {(event["name"], event["x"]) for event in events if event["kind"] == "nan"}
    assert broken == {("loss", BROKEN[0]), (NAMES[ODD], ZERO)}


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ([1, 1, NAN, NAN], 2),
        ([1, 1, 1, NAN], None),  # a snapshot after training
        ([1, NAN, NAN, 1, NAN, NAN], None),  # logged now and then
        ([NAN, 1, 1], None),
        ([NAN, NAN], None),
        ([], None),
    ],
)
def test_a_scalar_breaks_where_it_stays_missing(values: list[float], place: int | None) -> None:
    assert broken_from(np.array(values)) == place


def test_a_loss_that_broke_is_no_number_in_the_list(server: Server) -> None:
    (row,) = server.get("runs").json["runs"]
    assert row["loss_broke"] is True


def legend(site: Watched, panel: str) -> str:
    return site.page.locator(f'[data-panel="{panel}"] .legend').inner_text()


def test_pictures_say_what_is_missing(site: Watched, run: str, tmp_path: Path) -> None:
    site.go(view="depth", run=run, of="singular_values", metric="stable_rank")
    site.settled()
    assert "NaN" in legend(site, "heat")
    assert "NaN" in exported(site, "heat", "SVG", tmp_path).decode()
    site.go(view="depth", run=run, of="surprise", metric="value")
    site.settled()
    assert "NaN" not in legend(site, "heat")
    page = site.go(view="matrix", run=run, matrix=NAMES[ODD], at=str(BROKEN[-1]))
    site.settled()
    assert "NaN" in legend(site, "image")
    page.locator('[data-panel="facts"]').get_by_text("NaN").first.wait_for()
    assert f"step {BROKEN[-1]}: NaN" in exported(site, "spectrum", "SVG", tmp_path).decode()


@pytest.mark.parametrize("colour", ["#5a636e", "rgb(90, 99, 110)"])
def test_pixels_take_colours_of_pages_and_of_widgets(site: Watched, colour: str) -> None:
    script = "async (colour) => (await import('/static/draw/colours.js')).channels(colour)"
    assert site.page.evaluate(script, colour) == [90, 99, 110]


def test_the_list_of_runs_says_that_a_loss_broke(site: Watched) -> None:
    assert "NaN" in site.page.locator("tbody tr").inner_text()


def test_a_scalar_that_is_logged_seldom_is_drawn(site: Watched, run: str, tmp_path: Path) -> None:
    site.go(view="depth", run=run, scalars="validation_loss")
    site.settled()
    picture = exported(site, "scalars", "SVG", tmp_path).decode()
    assert picture.count("<circle") == 5  # steps 0, 8, ... 32, each without neighbours
    assert 'stroke-dasharray="2 4"' in picture


STORED_COLUMNS = """async ([columns, places]) => {
  const { storedColumns } = await import('/static/data/frame.js');
  const values = new Uint8Array(columns), x = Float64Array.from(values, (_, i) => 10 * i);
  for (const place of places) values[place] = 7;
  values.shape = [1, columns];
  const { arrays, times } = storedColumns({ meta: {}, arrays: { values, x } });
  return [arrays.x.map((at) => at / 10), arrays.values, times.times].map((one) => Array.from(one));
}"""


@pytest.mark.parametrize(
    ("columns", "places", "shown"),
    [
        (47, [0, 46], [0, 1, 45, 46]),  # both ends alone: a gap between them
        (47, [0], [0, 1, 46]),
        (30, [0, 2, 4, 20], [0, 2, 4, 5, 19, 20, 21, 29]),
        (96, range(0, 96, 8), range(0, 96, 8)),  # even samples fill the picture
        (5, [0, 2, 4], [0, 2, 4]),
    ],
)
def test_a_stored_column_fills_no_wide_gap(
    site: Watched, columns: int, places: list[int], shown: list[int]
) -> None:
    places = list(places)
    x, values, times = site.page.evaluate(STORED_COLUMNS, [columns, places])
    assert x == list(shown)
    assert [at for at, value in zip(x, values, strict=True) if value] == places
    assert times == [10 * place for place in places]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (
            {"stored": 2, "columns": 47, "times": [0, 15423]},
            "2 of 47 snapshots (steps 0 and 15,423)",
        ),
        ({"stored": 1, "columns": 47, "times": [9]}, "1 of 47 snapshots (step 9)"),
        ({"stored": 3, "columns": 9, "times": [0, 1, 2]}, "3 of 9 snapshots (steps 0, 1 and 2)"),
        ({"stored": 4, "columns": 9, "times": [0, 1, 2, 3]}, "4 of 9 snapshots"),
        ({"stored": 9, "columns": 9}, ""),
        ({}, ""),
    ],
)
def test_words_say_how_seldom_an_array_is_stored(
    site: Watched, times: dict[str, Any], words: str
) -> None:
    script = "async (times) => (await import('/static/data/format.js')).storedWords(times, 'step')"
    assert site.page.evaluate(script, times) == (f"stored at {words}" if words else "")


def test_a_course_that_nobody_measured_is_not_drawn(browser: Any, tmp_path: Path) -> None:
    ends, pair = (STEPS[0], STEPS[-1]), NAMES[1]
    with create(tmp_path / "ends") as writer:
        for step in STEPS:
            values = snapshot(step)
            if step not in ends:
                for name in ("singular_values", "alignment", "alignment_background"):
                    values[name] = np.full_like(values[name], NAN)
            writer.append(step, values, scalars={"loss": 1.0})
    words = f"stored at 2 of 40 snapshots (steps 0 and {STEPS[-1]})"
    with serving(tmp_path) as server, watched(browser, address(server)) as site:
        run = server.key("ends")
        for view, panels in (
            ("depth", ("heat",)),
            ("alignment", ("heat", "diagonal", "mean")),
            ("matrix", ("image", "percentiles", "metric")),
        ):
            page = site.go(
                view=view, run=run, matrix=pair, of="singular_values", metric="stable_rank"
            )
            site.settled()
            for panel in panels:
                page.locator(f'[data-panel="{panel}"] .note').get_by_text(words).wait_for()
        page = site.go(view="depth", run=run, of="singular_values", metric="stable_rank")
        site.settled()
        assert "not stored" in legend(site, "heat")
        picture = page.locator('[data-panel="heat"] canvas').first
        box = picture.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
        tip = page.locator('[data-panel="heat"] .tip').inner_text()
        assert "not stored" in tip
        assert not re.search(r"step\s*(0|1|38|39)$", tip)  # the cursor's, not of a stored one
        page = site.go(view="moved", run=run, of="singular_values", metric="stable_rank")
        site.settled()
        page.get_by_text(words).wait_for()
        line = page.locator("tbody .spark path").first.get_attribute("d")
        assert line.count("M") == 2 and "L" not in line
        page = site.go(view="matrix", run=run, matrix=pair, at="20", of="singular_values")
        site.settled()  # the spectrum beside the picture is that of the nearest snapshot
        assert "step 39" in exported(site, "spectrum", "SVG", tmp_path).decode()


def test_bands_leave_gaps_out(site: Watched) -> None:
    outlines = site.page.evaluate(
        """async () => {
          const { bandsOf } = await import('/static/draw/lines.js');
          const low = [1, 2, NaN, NaN, 5], high = [6, 7, NaN, NaN, 8];
          const series = { x: [0, 1, 2, 3, 4], low, high };
          const scale = { toUnit: (x) => x }, values = { place: (value) => value };
          return bandsOf(series, [0, 5], scale, values, { x: 0, width: 10 });
        }"""
    )
    assert outlines == [[0, 1, 10, 2, 10, 7, 0, 6], [38, 5, 42, 5, 42, 8, 38, 8]]
