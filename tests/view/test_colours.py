"""Linear or logarithmic colours of a heat map, chosen by its values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankscope as rs
from rankscope.view.export import unpacked
from rankscope.view.overview import overview_frame
from rankscope.view.quantities import Quantity
from view.archived_site import address, exported, wait_for_paint
from view.browsing import chromium, watched
from view.viewed_runs import Server, create, serving, snapshot

CELLS = np.linspace(0, 1, 500)
WIDE = 10 ** (3 * CELLS)  # three decades, evenly


def quantity(**options: Any) -> Quantity:
    return Quantity("any", "value", "matrix", "any", "other", **options)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (WIDE, "log"),
        (10 ** (1.5 * CELLS), "linear"),
        (np.where(CELLS < 0.5, 1 + CELLS, 40 + CELLS), "log"),  # two groups
        (np.array([0.0, *WIDE]), "log"),
        (np.array([np.nan, np.inf, *WIDE]), "log"),
        (np.array([-1.0, *WIDE]), "linear"),
        (np.array([1e-9, *(1 + CELLS)]), "linear"),  # one of them small: all others were bright
        (np.zeros(3), "linear"),
        (np.full(3, np.nan), "linear"),
        (np.array([]), "linear"),
    ],
    ids=[
        *("decades", "narrow", "groups", "zeros", "not finite", "negative", "outlier"),
        *("zero", "nan", "none"),
    ],
)
def test_colours_are_logarithmic_where_positive_values_span_decades(
    values: np.ndarray, kind: str
) -> None:
    assert quantity().colour_kind(values) == kind
    assert quantity(scale="log").colour_kind(values) == "log"
    assert quantity(domain=(0.0, 1.0)).colour_kind(values) == "linear"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A run whose measure `surprise` grows over three decades."""
    folder = tmp_path_factory.mktemp("runs")
    with create(folder / "run") as writer:
        for step in range(40):
            surprise = 10 ** (step / 13 + 0.01 * np.arange(5))
            writer.append(step, snapshot(step) | {"surprise": surprise})
    with serving(folder) as running:
        yield running


@pytest.mark.parametrize("form", ["uint8", "float32"])
def test_a_heat_map_says_that_its_colours_are_logarithmic(server: Server, form: str) -> None:
    asked = {"run": server.key("run"), "of": "surprise", "format": form}
    scale = server.get("heat", **asked).meta["scale"]
    assert scale.pop("kind") == "log"
    assert scale == pytest.approx({"low": 1.0, "high": 10**3.04}, rel=1e-4)
    assert server.get("heat", **asked, low=0, high=9).meta["scale"]["kind"] == "linear"
    stable = server.get("heat", run=server.key("run"), metric="stable_rank", format=form)
    assert stable.meta["scale"]["kind"] == "linear"


def test_the_overview_has_the_colours_of_the_page(server: Server) -> None:
    run = rs.open(server.library.place(server.key("run")).path)
    _, meta = unpacked(overview_frame(run, of="surprise"))
    assert meta["scale"]["kind"] == "log"


COLUMN = """() => {
  const canvas = document.querySelector('[data-panel="heat"] canvas');
  const x = Math.round(canvas.width * 0.55), y = Math.round(canvas.height / 2);
  return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
}"""


def test_a_page_draws_and_exports_logarithmic_colours(server: Server, tmp_path: Path) -> None:
    with chromium() as browser, watched(browser, address(server)) as site:
        page = site.go(view="depth", run=server.key("run"), of="surprise", metric="value")
        wait_for_paint(page, "heat")
        legend = page.locator('[data-panel="heat"] .legend')
        assert "log" in legend.inner_text().split()
        red, green, blue, _ = page.evaluate(COLUMN)
        assert green > blue > red  # near the middle of viridis; linear colours are dark there
        assert green > 100
        assert ">1,096 log<" in exported(site, "heat", "SVG", tmp_path).decode()
        page = site.go(view="depth", run=server.key("run"), metric="stable_rank")
        wait_for_paint(page, "heat")
        assert "log" not in legend.inner_text().split()
