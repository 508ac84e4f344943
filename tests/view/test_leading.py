"""Runs that keep leading values, and measures of other axes."""

from pathlib import Path

import numpy as np

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
        assert spectrum.meta["noise"] is None
        assert spectrum.meta["ranks"]["now"] == {}
