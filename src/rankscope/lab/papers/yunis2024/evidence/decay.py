"""Y5: what weight decay does to the alignment of pairs, network by network and kind by kind."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import xarray as xr

from rankscope.lab.judging.verdict import Table
from rankscope.lab.papers.yunis2024.claims.decay import STEP, final_relative_alignment, respond
from rankscope.lab.papers.yunis2024.evidence.runs import (
    DIRECTIONS,
    Row,
    by_column,
    decay_columns,
    decay_table,
    decays,
    met_of,
    of_kind,
    seeds,
    sweep,
)
from rankscope.lab.papers.yunis2024.runs import neighbours, overlaps

LIVE = 0.01  # of the largest singular value
VANISHED = 0.1  # largest singular value of a head's queries or keys

Finals = dict[float, xr.DataArray]


def finals(network: str, seed: int = 0) -> Finals:
    """(pair): final a / background by decay."""
    return {decay: final_relative_alignment(ds) for decay, ds in sweep(network, seed).items()}


def raw_finals(network: str, seed: int = 0) -> Finals:
    """(pair): final a, not divided by the background."""

    def raw(ds: xr.Dataset) -> xr.DataArray:
        end = neighbours(overlaps(ds.isel(step=[-1])))
        a: xr.DataArray = end.rankscope.mean_alignment().isel(step=0, drop=True)
        return a

    return {decay: raw(ds) for decay, ds in sweep(network, seed).items()}


def chosen(of: Finals, those: np.ndarray) -> Finals:
    return {decay: each[those] for decay, each in of.items()}


def response(of: Finals, columns: Sequence[float]) -> Row:
    """The median pair by decay, the median Spearman, and how many pairs rise by 0.05."""
    found = respond(of, 1)
    assert found is not None and found.far is not None, "kept sweeps have four decays, 0 among them"
    medians = by_column(columns, of, lambda each: float(each.median()))
    return *medians, found.correlation, met_of(found.far)


def response_table(title: str, columns: Sequence[float], rows: Mapping[str, Finals]) -> Table:
    """columns: decays."""
    return Table(
        ("median pair", *decay_columns(columns), "Spearman", f"rise by {STEP:g}"),
        tuple((name, *response(of, columns)) for name, of in rows.items()),
        title,
    )


def vgg() -> Table:
    """VGG: final alignment by decay, over the background and raw."""
    rows: dict[str, Finals] = {}
    for seed in seeds("vgg"):
        rows |= {f"seed {seed}": finals("vgg", seed), f"seed {seed}, raw": raw_finals("vgg", seed)}
    return response_table("a / background of VGG", decays("vgg"), rows)


def between_seeds() -> Table:
    """VGG: the factor by which a pair differs between two seeds, by decay."""
    rows: list[Row] = []
    for one, other in combinations(seeds("vgg"), 2):
        first, second = finals("vgg", one), finals("vgg", other)
        ratios = {decay: first[decay] / second[decay] for decay in first.keys() & second.keys()}
        rows.append((f"seeds {one} and {other}", *by_column(decays("vgg"), ratios, median_factor)))
    return Table(("", *decay_columns(decays("vgg"))), tuple(rows), "median factor")


def median_factor(ratios: xr.DataArray) -> float:
    """By which values differ, up or down, if these are their ratios; at least 1."""
    return float(np.exp(np.median(np.abs(np.log(ratios)))))


def few_directions() -> Table:
    """VGG: pairs of convolutions either of which has an effective rank below ten, and accuracy."""
    return decay_table(
        "at the end",
        "vgg",
        {
            "pairs of convolutions, effective rank of either below ten": narrow_pairs,
            "held-out images right": lambda ds: float(ds["validation_accuracy"][-1]),
        },
    )


def narrow_pairs(ds: xr.Dataset) -> int:
    rank = ds.isel(step=[-1]).rankscope.effective_rank().isel(step=0)
    near = ds.isel(pair=np.flatnonzero(of_kind(ds, "conv")))
    ends = zip(near["earlier"].to_numpy(), near["later"].to_numpy(), strict=True)
    return sum(float(rank.sel(matrix=list(pair)).min()) < DIRECTIONS for pair in ends)


def unet_and_lstm() -> Table:
    """UNet and LSTM: final alignment by decay. The layer tconv1 has a single direction."""
    unet, lstm = finals("unet"), finals("lstm")
    narrow = unet[0.0]["later"].to_numpy() == "tconv1"
    cell = np.array([str(name).endswith("[g]") for name in lstm[0.0]["pair"].to_numpy()])
    rows = {
        "UNet, all pairs": unet,
        "UNet, into tconv1": chosen(unet, narrow),
        "UNet, others": chosen(unet, ~narrow),
        "UNet, raw": raw_finals("unet"),
        "LSTM, cell gate": chosen(lstm, cell),
        "LSTM, other gates": chosen(lstm, ~cell),
        "LSTM, raw": raw_finals("lstm"),
    }
    assert decays("unet") == decays("lstm"), "the columns are of both"
    return response_table("a / background of UNet and LSTM", decays("lstm"), rows)


def shown_pairs() -> Table:
    """The pairs that figure 5 shows, by decay in rising order."""
    rows: list[Row] = []
    for network in ("vgg", "unet", "lstm", "lm"):
        for seed in seeds(network):
            pair = str(sweep(network, seed)[0.0].attrs["shown_pair"])
            of_pair = {decay: each.sel(pair=pair) for decay, each in finals(network, seed).items()}
            rows.append((network, seed, pair, *by_column(decays(network), of_pair, float)))
    columns = ("network", "seed", "pair", "none", "second", "third", "largest")
    return Table(columns, tuple(rows), "a / background by decay")


def lm_kinds() -> Table:
    """Transformer: final alignment by decay, of queries with keys and of the other pairs."""
    return response_table("a / background of the Transformer", decays("lm"), _by_kind(finals("lm")))


def lm_up_to_one() -> Table:
    """Transformer: the same up to a decay of 1."""
    of = {decay: each for decay, each in finals("lm").items() if decay <= 1}
    return response_table("a / background up to a decay of 1", list(of), _by_kind(of))


def _by_kind(of: Finals) -> dict[str, Finals]:
    kinds = of[0.0]["pair_kind"].to_numpy()
    return {
        "all": of,
        "q-k": chosen(of, kinds == "qk"),
        "other than q-k": chosen(of, kinds != "qk"),
        "inside the MLP": chosen(of, kinds == "w1-w2"),
    }


def overlaps_by_rank() -> Table:
    """Transformer: overlaps of single directions of q-k, and of the first ten inside the MLP."""

    def of(ds: xr.Dataset, kind: str, *ranks: int) -> xr.DataArray:
        end = ds["alignment"].isel(step=-1)[of_kind(ds, kind)]
        return end.sel(i=list(ranks)).mean("i")

    return decay_table(
        "overlap A_ii at the end",
        "lm",
        {
            "q-k, first two, mean": lambda ds: float(of(ds, "qk", 1, 2).mean()),
            "q-k, tenth, mean": lambda ds: float(of(ds, "qk", 10).mean()),
            "inside the MLP, first ten, median": lambda ds: float(
                of(ds, "w1-w2", *range(1, 11)).median()
            ),
        },
    )


def live_directions() -> Table:
    """Transformer: singular values of queries, keys and values above 1% of the largest."""

    return decay_table(
        "of all heads of a layer together",
        "lm",
        {"fewest": lambda ds: int(live(ds).min()), "most": lambda ds: int(live(ds).max())},
    )


def live(ds: xr.Dataset) -> np.ndarray:
    """(layer): of queries, keys and values together, at the end."""
    packed = [str(name).endswith("attn.qkv") for name in ds["matrix"].to_numpy()]
    S = ds["singular_values"].isel(step=-1, matrix=np.flatnonzero(packed))
    counts: np.ndarray = (S / S.isel(k=0) > LIVE).sum("k").to_numpy()
    return counts


def vanished_heads() -> Table:
    """Transformer: q-k of heads whose queries or keys vanish at the largest decay, and others."""
    of = {decay: each[of_kind(each, "qk")] for decay, each in finals("lm").items()}
    weak = vanished(sweep("lm")[max(of)])
    layers = sorted({name.partition(".attn")[0] for name in weak})
    those = np.isin(of[0.0]["pair"].to_numpy(), weak)
    rows = {"vanished": chosen(of, those), "other q-k": chosen(of, ~those)}
    title = (
        f"largest singular value below {VANISHED:g} at decay {max(of):g}, in {', '.join(layers)}"
    )
    return response_table(title, decays("lm"), rows)


def vanished(ds: xr.Dataset) -> list[str]:
    """The q-k pairs either of whose matrices has no large singular value at the end."""
    sizes = ds["singular_values"].isel(step=-1, k=0).to_numpy()
    largest = dict(zip(ds["matrix"].to_numpy(), sizes, strict=True))
    pairs = ds.isel(pair=np.flatnonzero(of_kind(ds, "qk")))
    named = zip(*(pairs[of].to_numpy() for of in ("pair", "earlier", "later")), strict=True)
    return [str(name) for name, u, v in named if min(largest[u], largest[v]) < VANISHED]
