"""Y5: alignment of pairs by decay, network by network and kind by kind."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import xarray as xr

from rankscope.lab.judging.runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.decay import STEP, final_relative_alignment, respond
from rankscope.lab.papers.yunis2024.evidence.runs import (
    DIRECTIONS,
    by_column,
    decay_columns,
    met_of,
    of_kind,
    sweeps_of,
)
from rankscope.lab.papers.yunis2024.runs import BASE, neighbours, overlaps
from rankscope.lab.reporting.evidence import Row

LIVE = 0.01  # of the largest singular value
VANISHED = 0.1  # largest singular value of a head's queries or keys

Sweep = Mapping[float, xr.Dataset]
Finals = dict[float, xr.DataArray]  # by decay: a value for each pair at the end


def relative_finals(sweep: Sweep) -> Finals:
    """Return final a / background."""
    return {decay: final_relative_alignment(ds) for decay, ds in sweep.items()}


def raw_finals(sweep: Sweep) -> Finals:
    """Return final a, not divided by the background."""

    def final_alignment(ds: xr.Dataset) -> xr.DataArray:
        end = neighbours(overlaps(ds.isel(step=[-1])))
        a: xr.DataArray = end.rankscope.mean_alignment().isel(step=0, drop=True)
        return a

    return {decay: final_alignment(ds) for decay, ds in sweep.items()}


def select(finals: Finals, chosen: np.ndarray) -> Finals:
    """Select pairs."""
    return {decay: values[chosen] for decay, values in finals.items()}


def response(finals: Finals, decays: Sequence[float]) -> Row:
    """Return the median pair by decay, the median Spearman, and how many pairs rise by 0.05."""
    measured = respond(finals, 1)
    assert measured and measured.far, "archived sweeps have three decays or more, and decay 0"
    medians = by_column(decays, finals, lambda values: float(values.median()))
    return *medians, measured.correlation, met_of(measured.far)


def response_table(title: str, decays: Sequence[float], rows: Mapping[str, Finals]) -> Table:
    """Return a table with the response of each group of pairs."""
    return Table(
        ("median pair", *decay_columns(decays), "Spearman", f"rise by {STEP:g}"),
        tuple((name, *response(finals, decays)) for name, finals in rows.items()),
        title,
    )


def vgg_response(runs: Runs) -> Table:
    """VGG: final alignment by decay, over the background and raw."""
    vgg = sweeps_of(runs, "vgg")
    rows: dict[str, Finals] = {}
    for seed, sweep in vgg.by_seed.items():
        rows |= {f"seed {seed}": relative_finals(sweep), f"seed {seed}, raw": raw_finals(sweep)}
    return response_table("a / background of VGG", vgg.decays, rows)


def vgg_seeds(runs: Runs) -> Table:
    """VGG: factor by which the alignment of a pair differs between two seeds, by decay."""
    vgg = sweeps_of(runs, "vgg")
    finals = {seed: relative_finals(sweep) for seed, sweep in vgg.by_seed.items()}
    rows: list[Row] = []
    for one, other in combinations(finals, 2):
        common = finals[one].keys() & finals[other].keys()
        ratios = {decay: finals[one][decay] / finals[other][decay] for decay in common}
        rows.append((f"seeds {one} and {other}", *by_column(vgg.decays, ratios, median_factor)))
    return Table(("", *decay_columns(vgg.decays)), tuple(rows), "median factor")


def median_factor(ratios: xr.DataArray) -> float:
    """Return the median factor, at least 1, by which values differ up or down."""
    return float(np.exp(np.median(np.abs(np.log(ratios)))))


def vgg_narrow_pairs(runs: Runs) -> Table:
    """VGG: pairs of convolutions one of which has an effective rank below ten, and accuracy."""
    return sweeps_of(runs, "vgg").table(
        "at the end",
        {
            "pairs with an effective rank below ten": narrow_pairs,
            "held-out images right": lambda ds: float(ds["validation_accuracy"][-1]),
        },
    )


def narrow_pairs(ds: xr.Dataset) -> int:
    """Count the pairs of convolutions one of which has an effective rank below ten."""
    rank = ds.isel(step=[-1]).rankscope.effective_rank().isel(step=0)
    pairs = ds.isel(pair=np.flatnonzero(of_kind(ds, "conv")))
    ends = zip(pairs["earlier"].to_numpy(), pairs["later"].to_numpy(), strict=True)
    return sum(float(rank.sel(matrix=list(pair)).min()) < DIRECTIONS for pair in ends)


def unet_and_lstm_response(runs: Runs) -> Table:
    """UNet and LSTM: final alignment by decay; the layer tconv1 has a single direction."""
    unet_sweeps, lstm_sweeps = sweeps_of(runs, "unet"), sweeps_of(runs, "lstm")
    assert unet_sweeps.decays == lstm_sweeps.decays, "both networks share columns"
    unet, lstm = relative_finals(unet_sweeps.first), relative_finals(lstm_sweeps.first)
    narrow = unet[0.0]["later"].to_numpy() == "tconv1"
    cell = np.array([str(name).endswith("[g]") for name in lstm[0.0]["pair"].to_numpy()])
    rows = {
        "UNet, all pairs": unet,
        "UNet, into tconv1": select(unet, narrow),
        "UNet, others": select(unet, ~narrow),
        "UNet, raw": raw_finals(unet_sweeps.first),
        "LSTM, cell gate": select(lstm, cell),
        "LSTM, other gates": select(lstm, ~cell),
        "LSTM, raw": raw_finals(lstm_sweeps.first),
    }
    return response_table("a / background of UNet and LSTM", lstm_sweeps.decays, rows)


def shown_pairs(runs: Runs) -> Table:
    """Final alignment of the pairs in figure 5, by ascending decay."""
    rows: list[Row] = []
    for network in BASE:
        sweeps = sweeps_of(runs, network)
        for seed, sweep in sweeps.by_seed.items():
            pair = str(sweep[0.0].attrs["shown_pair"])
            finals = {d: values.sel(pair=pair) for d, values in relative_finals(sweep).items()}
            rows.append((network, seed, pair, *by_column(sweeps.decays, finals, float)))
    columns = ("network", "seed", "pair", "none", "second", "third", "largest")
    return Table(columns, tuple(rows), "a / background by decay")


def lm_response(runs: Runs) -> Table:
    """Transformer: final alignment by decay, of queries with keys and of the other pairs."""
    lm = sweeps_of(runs, "lm")
    rows = _by_kind(relative_finals(lm.first))
    return response_table("a / background of the Transformer", lm.decays, rows)


def lm_response_up_to_one(runs: Runs) -> Table:
    """Transformer: final alignment by decay, up to a decay of 1."""
    sweep = {decay: ds for decay, ds in sweeps_of(runs, "lm").first.items() if decay <= 1}
    rows = _by_kind(relative_finals(sweep))
    return response_table("a / background up to a decay of 1", list(sweep), rows)


def _by_kind(finals: Finals) -> dict[str, Finals]:
    kinds = finals[0.0]["pair_kind"].to_numpy()
    return {
        "all": finals,
        "q-k": select(finals, kinds == "qk"),
        "other than q-k": select(finals, kinds != "qk"),
        "inside the MLP": select(finals, kinds == "w1-w2"),
    }


def lm_overlaps(runs: Runs) -> Table:
    """Transformer: overlaps of single directions of q-k, and of the first ten inside the MLP."""

    def overlap(ds: xr.Dataset, kind: str, *directions: int) -> xr.DataArray:
        end = ds["alignment"].isel(step=-1)[of_kind(ds, kind)]
        return end.sel(i=list(directions)).mean("i")

    return sweeps_of(runs, "lm").table(
        "overlap A_ii at the end",
        {
            "q-k, first two, mean": lambda ds: float(overlap(ds, "qk", 1, 2).mean()),
            "q-k, tenth, mean": lambda ds: float(overlap(ds, "qk", 10).mean()),
            "inside the MLP, first ten, median": lambda ds: float(
                overlap(ds, "w1-w2", *range(1, 11)).median()
            ),
        },
    )


def lm_live_directions(runs: Runs) -> Table:
    """Transformer: singular values of queries, keys and values above 1% of the largest."""
    return sweeps_of(runs, "lm").table(
        "all heads of a layer together",
        {"fewest": lambda ds: int(live(ds).min()), "most": lambda ds: int(live(ds).max())},
    )


def live(ds: xr.Dataset) -> np.ndarray:
    """(layer): how many values of queries, keys and values exceed 1% of the largest at the end."""
    packed = [str(name).endswith("attn.qkv") for name in ds["matrix"].to_numpy()]
    S = ds["singular_values"].isel(step=-1, matrix=np.flatnonzero(packed))
    counts: np.ndarray = (S / S.isel(k=0) > LIVE).sum("k").to_numpy()
    return counts


def lm_vanished_heads(runs: Runs) -> Table:
    """Transformer: q-k of heads that vanish at the largest decay, and of the others, by decay."""
    lm = sweeps_of(runs, "lm")
    finals = relative_finals(lm.first)
    qk = select(finals, of_kind(finals[0.0], "qk"))
    largest = max(lm.first)
    names = vanished(lm.first[largest])
    layers = sorted({name.partition(".attn")[0] for name in names})
    gone = np.isin(qk[0.0]["pair"].to_numpy(), names)
    rows = {"vanished": select(qk, gone), "other q-k": select(qk, ~gone)}
    where = f"at decay {largest:g}, in {', '.join(layers)}"
    return response_table(f"largest singular value below {VANISHED:g} {where}", lm.decays, rows)


def vanished(ds: xr.Dataset) -> list[str]:
    """Return the q-k pairs one of whose matrices has no singular value of 0.1 at the end."""
    sizes = ds["singular_values"].isel(step=-1, k=0).to_numpy()
    largest = dict(zip(ds["matrix"].to_numpy(), sizes, strict=True))
    pairs = ds.isel(pair=np.flatnonzero(of_kind(ds, "qk")))
    names = zip(*(pairs[name].to_numpy() for name in ("pair", "earlier", "later")), strict=True)
    return [str(pair) for pair, u, v in names if min(largest[u], largest[v]) < VANISHED]
