"""Runs that keep leading values, and measures of other axes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankscope as rs
from rankscope.store import Variable, Writer
from view.viewed_runs import serving


def write(path: Path) -> None:
    names = np.array(["blocks.0.q", "blocks.1.q"], object)
    spectra = np.sort(np.random.default_rng(0).random((4, 2, 3)) + 0.1)[..., ::-1]
    with Writer.create(
        path,
        coords={
            "matrix": (("matrix",), names),
            "m": (("matrix",), np.array([8, 8])),
            "n": (("matrix",), np.array([8, 8])),
            "part_of": (("matrix",), np.array(["", ""], object)),
            "r": (("r",), np.arange(3)),
            "activation": (("activation",), np.array(["blocks.0"], object)),
        },
        variables={
            "leading_values": Variable(("step", "matrix", "r")),
            "leading_frobenius": Variable(("step", "matrix")),
            "activation_dormant": Variable(("step", "activation")),
        },
    ) as writer:
        for step in range(4):
            values = {"leading_values": spectra[step], "leading_frobenius": [3.0, 4.0]}
            writer.append(step, {**values, "activation_dormant": [step / 4]})


def test_what_follows_from_leading_values_is_shown(tmp_path: Path) -> None:
    write(tmp_path / "run")
    ds = rs.open(tmp_path / "run").rankscope
    with serving(tmp_path) as server:
        run = server.key("run")
        described = server.get("run", run=run).json
        listed = {(one["of"], one["metric"]) for one in described["quantities"]}
        assert ("singular_values", "stable_rank") in listed
        assert ("singular_values", "energy_rank_50") in listed
        assert ("singular_values", "effective_rank") not in listed
        assert ("activation_dormant", "value") in listed
        heat = server.get("heat", run=run, metric="stable_rank", format="float32")
        np.testing.assert_array_equal(heat.array("values"), ds.stable_rank().T)
        dormant = server.get("heat", run=run, of="activation_dormant", format="float32")
        assert dormant.array("values").tolist() == [[0, 0.25, 0.5, 0.75]]
        spectra = server.get("spectra", run=run, of="leading_values", row=1)
        assert spectra.array("values").shape == (3, 4)
        spectrum = server.get("spectrum", run=run, of="leading_values", row=1)
        last = {"step": 3, "matrix": 1}
        S = ds.largest().isel(last).to_numpy()
        energy = (S.astype(float) ** 2).cumsum() / 4.0**2
        np.testing.assert_allclose(spectrum.array("energy_now"), energy, rtol=1e-6)
        expected = {"stable": ds.stable_rank().isel(last).item()}
        for share in (50, 90, 99):
            rank = ds.energy_rank(fraction=share / 100).isel(last).item()
            expected[str(share)] = None if math.isnan(rank) else rank
        assert spectrum.meta["ranks"]["now"] == pytest.approx(expected)
        assert spectrum.meta["noise"]["scale"] == 4.0 / 8
        assert (spectrum.meta["k"], spectrum.meta["whole_k"]) == (3, 8)
        for panel, name in (("spectrum", "energy"), ("ranks", "ranks")):
            wanted = {"panel": panel, "run": run, "of": "leading_values", "row": 1}
            computed: dict[str, Any] = {}
            exec(server.get("export", file="python", **wanted).body.decode(), computed)
            ranks = [math.nan if rank is None else rank for rank in expected.values()]
            found = computed[name]["now"]
            np.testing.assert_allclose(found, energy if panel == "spectrum" else ranks, rtol=1e-6)
