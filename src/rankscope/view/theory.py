"""Runs of theory: gradient flows at several alphas, and the stages that Algorithm 1 predicts."""

from typing import Any

import numpy as np
import xarray as xr

from rankscope.view.columns import Span
from rankscope.view.discovery import Place
from rankscope.view.frames import packed, plain
from rankscope.view.opened import Opened
from rankscope.view.query import Query

MOST_STAGES, MOST_CROSSINGS, MOST_COORDINATES = 1_000, 10_000, 4_096
FLOW = ("loss", "z", "y", "singular_values")  # what a flow may store over time


def theory(query: Query) -> dict[str, Any]:
    """Return the stages, crossings and alphas around one run of theory."""
    opened = query.run()
    siblings = _siblings(query, opened)
    algorithm = next((row["id"] for row in siblings if row["kind"] == "algorithm"), None)
    alphas = [row for row in siblings if row["log10_alpha"] is not None]
    alphas.sort(key=lambda row: (row["kind"], -row["log10_alpha"]))
    predicted = opened
    if "stage_time" not in opened.ds and algorithm is not None:
        predicted = query.library.open(algorithm)
    stages = _stages(predicted.ds)
    keys = [row["run"] for row in alphas]
    return plain(  # type: ignore[no-any-return]
        {
            "alphas": alphas,
            "selected": keys.index(opened.place.key) if opened.place.key in keys else None,
            "siblings": {"algorithm": algorithm},
            "coordinates": _coordinates(opened.ds),
            "stages": stages,
            "predicted": predicted.place.key,  # the run that holds the stages
            "crossings": _crossings(opened.ds),
            "staircase": _staircase(stages),
            "marks": [
                {"label": f"T{number}", "time": stage["time"]}
                for number, stage in enumerate(stages)
                if number
            ],
            "message": str(opened.attrs.get("message", ""))[:1000],
            "log10_alpha": opened.attrs.get("log10_alpha"),
            "epoch_time": opened.attrs.get("epoch_time"),
            "commit": opened.commit,
        }
    )


def flow(query: Query) -> bytes:
    """Return loss and coordinates of a flow over rescaled time."""
    opened = query.run()
    if opened.along != "time":
        raise LookupError("this run has no continuous time; choose a flow among the alphas")
    span = query.span()
    positions = Span(span.first, span.last, span.width, span.log).positions(opened.x)
    arrays = {"time": opened.x[positions].astype(np.float64)}
    meta: dict[str, Any] = {"commit": opened.commit, "log10_alpha": opened.attrs.get("log10_alpha")}
    if "loss" in opened.ds:
        arrays["loss"] = opened.read("loss")[positions].astype(np.float64)
    for name in ("z", "y"):
        if name in opened.ds and opened.ds[name].dims == ("time", "coordinate"):
            part = opened.read(name, coordinate=slice(0, MOST_COORDINATES))
            arrays[name] = part[positions].T.astype(np.float32)
    spectra = opened.ds.get("singular_values")
    if spectra is not None and spectra.dims == ("time", "product", "k"):
        values = opened.read("singular_values")[positions]
        arrays["singular_values"] = values.reshape(len(positions), -1).T.astype(np.float32)
        meta |= {"products": opened.names["product"], "k": spectra.sizes["k"]}
    return packed(arrays, meta)


def flow_parts(query: Query) -> list[str]:
    """Return the arrays that a panel shows: one of them, or all."""
    part = query.choice("part", "", *FLOW)
    return [part] if part else list(FLOW)


def staircase_at(query: Query, time: np.ndarray) -> np.ndarray | None:
    """Return the loss that Algorithm 1 predicts at some times; None beside another array."""
    predicted = query.library.open(theory(query)["predicted"]).ds
    if flow_parts(query) != ["loss"] or not {"stage_time", "stage_loss"} <= predicted.keys():
        return None
    stage = np.searchsorted(predicted["stage_time"].to_numpy(), time, "right") - 1
    losses: np.ndarray = predicted["stage_loss"].to_numpy()[stage.clip(0)]
    return losses


def _siblings(query: Query, opened: Opened) -> list[dict[str, Any]]:
    """Return the runs of other alphas and the algorithm's, with the same seed and task."""
    places = query.library.search().places
    family = _family(opened.place)
    rows = {row["id"]: row for row in query.library.summaries()}
    listed = []
    for key, place in places.items():
        row = rows.get(key)
        if row is None or row["kind"] != "theory" or _family(place) != family:
            continue
        power = row["alpha_log10"]
        is_algorithm = place.path.parent.name == "algorithm"
        listed.append(
            {
                "log10_alpha": None if is_algorithm else power,
                "run": key,
                "id": key,
                "label": f"alpha 1e{power:g}" if power is not None else place.name,
                "kind": "algorithm" if is_algorithm else "flow",
            }
        )
    return listed


def _family(place: Place) -> tuple[str, str]:
    """Runs of one network and seed lie in folders of variants beside each other."""
    return str(place.path.parent.parent), place.path.name


def _coordinates(ds: xr.Dataset) -> list[dict[str, Any]]:
    if "coordinate" not in ds.sizes:
        return []
    names = ds["coordinate"].to_numpy().astype(str)[:MOST_COORDINATES].tolist()
    columns = {
        name: ds[name].to_numpy().tolist()
        for name in ("layer", "head", "index", "kind")
        if name in ds and ds[name].dims == ("coordinate",)
    }
    return [
        {"name": text, **{key: values[i] for key, values in columns.items()}}
        for i, text in enumerate(names)
    ]


def _stages(ds: xr.Dataset) -> list[dict[str, Any]]:
    if "stage_time" not in ds:
        return []
    columns = {
        str(name).removeprefix("stage_"): ds[name].to_numpy()[:MOST_STAGES].tolist()
        for name in ds.data_vars
        if str(name).startswith("stage_") and ds[name].dims == ("stage",)
    }
    count = len(columns["time"])
    return [
        {"stage": i, **{name: values[i] for name, values in columns.items()}} for i in range(count)
    ]


def _crossings(ds: xr.Dataset) -> list[dict[str, Any]]:
    if "crossing_time" not in ds:
        return []
    names = ("time", "coordinate", "entered", "sign")
    columns = [ds[f"crossing_{name}"].to_numpy()[:MOST_CROSSINGS].tolist() for name in names]
    return [
        {"time": time, "coordinate": coordinate, "entered": bool(entered), "sign": sign}
        for time, coordinate, entered, sign in zip(*columns, strict=True)
    ]


def _staircase(stages: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the corners of the predicted loss: constant in a stage, then at once lower."""
    times, losses = [], []
    for stage in stages:
        if "loss" not in stage:
            return {"time": [], "loss": []}
        times += [stage["time"], stage.get("until", stage["time"])]
        losses += [stage["loss"]] * 2
    return {"time": times, "loss": losses}
