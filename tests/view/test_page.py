"""What a person sees and does on the page, in a real browser with archived runs."""

import itertools
import re
from pathlib import Path

import pytest

from view.archived_site import exported, wait_for_paint
from view.browsing import Watched
from view.viewed_runs import EVIL, Server


def open_run(site: Watched, name: str) -> None:
    """Open a run by its row in the table."""
    site.page.get_by_label("Filter runs").fill(name)
    site.page.wait_for_function(  # the table follows the filter a frame later
        """word => [...document.querySelectorAll("tbody [data-run]")].every(
          (button) => button.closest("tr").innerText.includes(word))""",
        arg=name.split()[-1],
    )
    site.page.locator("tbody [data-run]").first.click()
    site.page.wait_for_selector(".runline")


VIEWS = [
    ("grok decay-1", "depth", ("scalars", "heat")),
    ("grok decay-1", "matrix", ("image", "spectrum", "energy", "percentiles", "metric")),
    ("grok decay-1", "alignment", ("heat", "diagonal", "mean")),
    ("vit", "heads", ("heads", "spectrum", "energy", "image")),
    ("alpha-1e-16", "theory", ("loss", "z", "y")),
]


@pytest.mark.parametrize(("run", "view", "panels"), VIEWS, ids=[view for _, view, _ in VIEWS])
def test_view_opens_from_a_click(
    site: Watched, run: str, view: str, panels: tuple[str, ...]
) -> None:
    open_run(site, run)
    site.page.locator(f'[data-view="{view}"]').click()
    for panel in panels:
        wait_for_paint(site.page, panel)
    assert f"view={view}" in site.page.url
    assert site.page.locator(".state.error").count() == 0


def test_columns_without_a_value_are_left_out(site: Watched) -> None:
    page = site.page
    columns = page.locator("thead th button")
    page.wait_for_selector("tbody [data-run]")
    assert {"Decay", "Scale"} <= set(columns.all_inner_texts())
    page.get_by_label("Filter runs").fill("tracked")
    page.wait_for_function("() => !document.querySelector('thead').innerText.includes('Scale')")
    assert {"Run", "Decay", "Seed", "Last loss"} <= set(columns.all_inner_texts())
    assert "Network" not in columns.all_inner_texts()
    cells = page.locator("tbody tr").first.locator("td").count()
    assert cells == columns.count() + 1


def test_runs_are_found_and_sorted_by_network(site: Watched) -> None:
    page = site.page
    page.get_by_role("button", name="Network").click()
    page.wait_for_function("() => location.search.includes('sort=network')")
    texts = page.locator("tbody tr").all_inner_texts()
    found = re.findall("grokking|head, teacher 1|VGG|ViT, CIFAR-10", " ".join(texts))
    assert found == [*["grokking"] * 2, *["head, teacher 1"] * 3, "VGG", "ViT, CIFAR-10"]
    page.get_by_label("Filter runs").fill("vit, cifar")
    page.wait_for_function("() => document.querySelectorAll('tbody [data-run]').length === 1")


def test_pairs_name_once_what_they_share(site: Watched, server: Server, tmp_path: Path) -> None:
    site.go(view="alignment", run=server.key("yunis2024/vgg/vgg/decay-0.001/seed-0"))
    site.settled()
    picture = exported(site, "heat", "SVG", tmp_path).decode()
    assert ">convolution 1 &#62; 2<" in picture
    assert ">convolution 13 &#62; output<" in picture


def test_what_moved_leads_to_the_matrix(site: Watched) -> None:
    open_run(site, "grok decay-1")
    site.page.wait_for_selector('[data-panel="moved"] tbody [data-row]')
    site.page.wait_for_function("() => !document.querySelector('.partial')")  # rows stay in place
    first = site.page.locator('[data-panel="moved"] tbody [data-row]').first
    name = first.get_attribute("data-name")
    first.click()
    wait_for_paint(site.page, "image")
    assert name
    assert name in site.page.locator(".heading p").inner_text()
    site.page.go_back()
    site.page.wait_for_selector('[data-panel="moved"]')


def test_papers_lead_to_figures_numbers_and_runs(site: Watched) -> None:
    site.page.locator('[data-view="papers"]').click()
    site.page.wait_for_selector('[data-panel="yunis2024"]')
    marks = site.page.locator('[data-panel="yunis2024"]').inner_text()
    assert "Transformer" in marks and "lm " not in marks
    site.page.locator('[data-claim="Y9"]').click()
    claim = site.page.locator('[data-panel="claim"]')
    assert "groks" in claim.inner_text()
    assert re.search(r"seed 0: \S+", claim.inner_text())
    site.page.wait_for_function("() => document.querySelector('figure img')?.naturalWidth > 0")
    assert "/figure?" in str(claim.locator("figure a").get_attribute("href"))
    claim.locator("[data-open]").first.click()
    site.page.wait_for_selector(".runline")


def test_replaced_rules_stand_in_the_address(site: Watched) -> None:
    page = site.go(view="papers")
    claims = page.locator("[data-claim]")
    claims.first.wait_for()
    current = claims.count()
    page.get_by_role("button", name="show replaced rules").click()
    page.wait_for_function("() => location.search.includes('rules=replaced')")
    page.reload()
    claims.first.wait_for()
    assert claims.count() > current


def test_rankings_name_what_they_rank(site: Watched, server: Server) -> None:
    page = site.go(view="moved", run=server.key("tracked"))
    site.settled()
    assert page.locator(".heading p").inner_text().startswith("5 matrices, ranked")
    page.get_by_label("Measure").select_option(label="alignment over background")
    site.settled()
    assert page.locator(".heading p").inner_text().startswith("1 pair, ranked")
    assert "1 pair" in page.locator('[data-panel="kinds"]').inner_text()


def test_one_cursor_in_all_panels(site: Watched, server: Server) -> None:
    run = server.key("yunis2024/grok/grok/decay-1/seed-0")
    page = site.go(view="depth", run=run)
    wait_for_paint(page, "heat")
    box = page.locator('[data-panel="heat"] .canvas').bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 60)
    page.wait_for_function("() => location.search.includes('at=')")
    lines = page.evaluate(
        """() => ["scalars", "heat"].map(name => {
          const canvas = document.querySelector(`[data-panel="${name}"] canvas.above`);
          const { width } = canvas, ratio = devicePixelRatio;
          const data = canvas.getContext("2d").getImageData(0, canvas.height >> 1, width, 1).data;
          let place = -1, most = 0;
          for (let x = 0; x < width; x++) {
            if (data[4 * x + 3] > most) [place, most] = [x, data[4 * x + 3]];
          }
          return Math.round(place / ratio);
        })"""
    )
    assert lines[0] == lines[1] > 0
    assert abs(lines[0] - 0.5 * box["width"]) < 12


def test_a_drag_zooms_and_a_double_click_shows_all(site: Watched, server: Server) -> None:
    page = site.go(view="depth", run=server.key("yunis2024/grok/grok/decay-1/seed-0"))
    wait_for_paint(page, "heat")
    box = page.locator('[data-panel="heat"] .canvas').bounding_box()
    assert box
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 70, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "() => /from=\\d+/.test(location.search) && /to=\\d+/.test(location.search)"
    )
    assert "view=depth" in page.url  # a drag is no click
    page.get_by_role("button", name="Whole run").click()
    page.wait_for_function("() => !location.search.includes('from=')")


def test_a_drag_may_end_outside_its_panel(site: Watched, server: Server) -> None:
    page = site.go(view="depth", run=server.key("yunis2024/grok/grok/decay-1/seed-0"))
    wait_for_paint(page, "scalars")
    box = page.locator('[data-panel="scalars"] .canvas').bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 20, box["y"] - 40, steps=6)
    page.mouse.up()
    page.wait_for_function("() => /from=\\d+/.test(location.search)")
    end = page.evaluate("() => new URLSearchParams(location.search).get('to')")
    assert float(end) == server.library.open(server.key("yunis2024/grok/grok/decay-1/seed-0")).x[-1]


def test_an_address_is_asked_once_and_left_when_nobody_waits(site: Watched, server: Server) -> None:
    page = site.go(view="depth", run=server.key("yunis2024/grok/grok/decay-1/seed-0"))
    site.settled()
    page.wait_for_timeout(1500)  # the first news of the run have come
    for endpoint in ("run?", "scalars?", "heat?", "events?"):
        asked = [url for url in site.requests if f"/api/{endpoint}" in url]
        assert len(asked) == 1, endpoint
    page.route("**/api/heat?*stable_rank*", lambda route: None)  # has no answer
    with page.expect_event("requestfailed") as left:
        page.get_by_label("Measure").select_option(label="stable rank")
        page.wait_for_selector('[data-panel="heat"].loading')
        page.get_by_label("Measure").select_option(label="numerical rank")
    assert "ABORTED" in str(left.value.failure)


def test_address_round_trips(site: Watched, server: Server) -> None:
    run = server.key("yunis2024/grok/grok/decay-1/seed-0")
    state = {
        "view": "matrix",
        "run": run,
        "of": "singular_values",
        "metric": "stable_rank",
        "axis": "log",
        "at": "2000",
        "matrix": "block.w1",
        "index": "linear",
    }
    page = site.go(**state)
    site.settled()
    wait_for_paint(page, "spectrum")
    assert page.get_by_role("button", name="log step").get_attribute("aria-pressed") == "true"
    assert "block.w1" in page.locator(".heading p").inner_text()
    page.wait_for_timeout(400)
    query = page.evaluate("() => Object.fromEntries(new URLSearchParams(location.search))")
    assert query == state


def test_two_runs_compare(site: Watched) -> None:
    page = site.page
    page.get_by_label("Filter runs").fill("grok")
    for box in page.locator("tbody input[type=checkbox]").all():
        box.check()
    page.get_by_role("button", name="Compare 2 runs").click()
    wait_for_paint(page, "compare")
    rows = page.locator('[data-panel="curves"] tbody tr')
    assert rows.count() == 2
    cells = rows.first.locator("td")
    assert len({cell.bounding_box()["height"] for cell in cells.all()}) == 1  # one line below all
    page.get_by_role("button", name="subtract").first.click()
    page.wait_for_selector('[data-panel="curves"] button[aria-pressed="true"]')
    page.get_by_label("Aligned by").select_option("fraction")
    site.settled()
    wait_for_paint(page, "compare")


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (2.86, 4.32, 2, [3, 4]),
        (2e-4, 2, 2, [1e-3, 0.1]),
        (0.3, 30, 4, [0.5, 1, 2, 5, 10, 20]),
        (0.01, 1e4, 9, None),
    ],
)
def test_ticks_of_a_logarithm(
    site: Watched, low: float, high: float, most: int, expected: list[float] | None
) -> None:
    ticks = site.page.evaluate(
        "async ([...range]) => (await import('/static/draw/time.js')).logTicks(...range)",
        [low, high, most],
    )
    assert ticks == (expected or [10.0**power for power in range(-2, 5)])


@pytest.mark.parametrize(
    ("steps", "most", "expected"),
    [
        (range(0, 57_600, 351), 12, list(range(0, 60_000, 5000))),
        (range(100), 4, [0, 25, 50, 75]),
        (range(5), 9, [0, 1, 2, 3, 4]),
        ([0, 44, 89, 133, 177, 222, 444, 666, 888, 1110], 4, [0, 100, 200, 500, 1000]),
        ([0, 1, 10, 100, 1000], 9, [0, 1, 10, 100, 1000]),
        ([7], 9, [7]),
        ([], 9, []),
    ],
)
def test_ticks_of_snapshots_are_round(
    site: Watched, steps: list[int], most: int, expected: list[int]
) -> None:
    ticks = site.page.evaluate(
        """async ([steps, most]) => {
          const { timeScale } = await import('/static/draw/time.js');
          const positions = Int32Array.from(steps, (_, i) => i), x = Float64Array.from(steps);
          return timeScale({ x, positions, kind: 'snapshots', from: null, to: null }).ticks(most);
        }""",
        [list(steps), most],
    )
    assert ticks == expected


def test_slider_over_alpha(site: Watched, server: Server) -> None:
    page = site.go(view="theory", run=server.key("boix2023/toy-diag/teacher-1/alpha-1e-8/seed-0"))
    wait_for_paint(page, "z")
    slider = page.locator("input[type=range]")
    before = page.url
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_function("before => location.href !== before", arg=before)
    wait_for_paint(page, "z")


def test_keyboard_alone_suffices(site: Watched) -> None:
    page = site.page
    page.keyboard.press("/")
    page.keyboard.type("grok decay-1 seed-0")
    page.keyboard.press("Enter")
    page.wait_for_selector(".runline")
    site.settled()
    page.keyboard.press("3")
    wait_for_paint(page, "heat")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => location.search.includes('at=')")
    page.keyboard.press("l")
    page.wait_for_function("() => location.search.includes('axis=linear')")
    page.keyboard.press("4")
    wait_for_paint(page, "image")
    heading = page.locator("h1").inner_text()
    page.keyboard.press("]")
    page.wait_for_function(
        "before => document.querySelector('h1').innerText !== before", arg=heading
    )
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog')")
    dark = page.evaluate("() => document.documentElement.dataset.theme")
    page.keyboard.press("t")
    page.wait_for_function("theme => document.documentElement.dataset.theme !== theme", arg=dark)
    page.keyboard.press("1")
    page.wait_for_selector("[data-run]")
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "() => document.activeElement.tagName + (document.activeElement.ariaLabel ?? '')"
            )
        )
    assert len(reached) > 3  # focus goes on through the page


def test_space_plays_through_the_run(site: Watched, server: Server) -> None:
    page = site.go(view="matrix", run=server.key("tracked"), at="0")
    wait_for_paint(page, "spectrum")
    page.keyboard.press(" ")
    page.wait_for_function("() => Number(new URLSearchParams(location.search).get('at')) > 4")
    page.keyboard.press(" ")


def test_ranks_and_chance_are_of_the_nearest_snapshot_with_a_spectrum(
    site: Watched, server: Server
) -> None:
    run = server.key("yunis2024/vgg/vgg/decay-0.001/seed-0")
    page = site.go(view="matrix", run=run, matrix="conv11", at="3861")
    site.settled()
    facts = page.locator('[data-panel="facts"]')
    facts.get_by_text("step 3,159").wait_for()
    assert re.search(r"effective rank\s+505\s+198", facts.inner_text())
    assert "chance" in page.locator('[data-panel="spectrum"] .legend').inner_text()


def test_names_of_files_are_text(site: Watched, server: Server) -> None:
    page = site.go(view="moved", run=server.key("evil"))
    site.settled()
    for view in ("depth", "matrix", "alignment", "runs"):
        page.locator(f'[data-view="{view}"]').click()
        site.settled()
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    assert EVIL in page.get_by_role("listbox").inner_text()
    assert page.locator("img[src=x]").count() == 0


def test_a_damaged_run_is_marked_and_the_rest_works(site: Watched) -> None:
    page = site.page
    page.get_by_label("Filter runs").fill("broken")
    row = page.locator("tbody tr", has_text="broken")
    assert "damaged" in row.inner_text()
    assert row.locator("[data-run]").is_disabled()


def test_a_view_that_cannot_open_says_why(site: Watched, server: Server) -> None:
    tab = site.page.locator('[data-view="alignment"]')
    assert tab.get_attribute("title") == "open a run first"
    site.page.keyboard.press("5")
    notice = site.page.locator(".notice")
    assert notice.inner_text() == "Alignment: open a run first."
    site.page.keyboard.press("9")
    site.page.wait_for_selector('[data-view="papers"][aria-current]')
    assert notice.count() == 0
    page = site.go(view="depth", run=server.key("tracked"))
    site.settled()
    theory = page.locator('[data-view="theory"]')
    assert theory.get_attribute("title") == "this run stores no theory"
    assert tab.is_enabled() and tab.get_attribute("title") is None
    page.keyboard.press("7")
    assert notice.inner_text() == "Theory: this run stores no theory."


VALUE_NUMBERS = """async ([low, high]) => {
  const { drawValueAxis, valueScale } = await import('/static/draw/axes.js');
  const plot = { x: 40, y: 0, width: 100, height: 120 }, numbers = [];
  const surface = { path() {}, text: (text, x, y) => numbers.push([text, y]) };
  drawValueAxis(surface, plot, valueScale(low, high, "log", plot), {});
  return numbers;
}"""


@pytest.mark.parametrize(
    ("ends", "powers"), [((0.05, 3), ["0.1", "1"]), ((0.09, 2.5), ["0.1", "1"]), ((2, 30), ["10"])]
)
def test_numbers_of_a_logarithmic_axis_keep_apart(
    site: Watched, ends: tuple[float, float], powers: list[str]
) -> None:
    numbers = site.page.evaluate(VALUE_NUMBERS, list(ends))
    heights = sorted(y for _, y in numbers)
    assert len(numbers) >= 2
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 13
    assert [text for text, _ in numbers][: len(powers)] == powers  # those first


def test_marks_that_stand_close_share_a_label(site: Watched) -> None:
    labels = site.page.evaluate(
        """async (places) => {
          const { markLabels } = await import('/static/views/theory.js');
          const marks = places.map((at, i) => ({ at, label: `T${i + 1}` }));
          return markLabels(marks, (text) => 6 * text.length).map(({ text }) => text);
        }""",
        [0, 100, 108, 116, 200],
    )
    assert labels == ["T1", "T2–T4", "T5"]
