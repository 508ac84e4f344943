"""Y5: what weight decay does to the alignment of pairs, network by network and kind by kind."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import xarray as xr

from findings.runs import Row, decay_columns, decay_table, seeds, shown, sweep
from rankscope.lab.claims.decay import STEP, final_relative_alignment, respond
from rankscope.lab.reading import neighbours, overlaps
from rankscope.lab.verdict import Table

FEW = 10  # directions over which alignment is averaged
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


def response(of: Finals) -> Row:
    """The median pair by decay, the median Spearman, and how many pairs rise by 0.05."""
    found = respond(of, 1)
    assert found is not None and found.far is not None, "kept sweeps have four decays, 0 among them"
    rises = len(found.far.counted) - len(found.far.exceptions)
    medians = (float(each.median()) for each in of.values())
    return *medians, found.correlation, shown(rises, len(found.far.counted))


def response_table(title: str, network: str, rows: Mapping[str, Finals]) -> Table:
    columns = ("median pair", *decay_columns(network), "Spearman", f"rise by {STEP:g}")
    return Table(columns, tuple((name, *response(of)) for name, of in rows.items()), title)


def vgg() -> Table:
    """VGG: final alignment by decay, over the background and raw."""
    rows: dict[str, Finals] = {}
    for seed in seeds("vgg"):
        rows |= {f"seed {seed}": finals("vgg", seed), f"seed {seed}, raw": raw_finals("vgg", seed)}
    return response_table("a / background of VGG", "vgg", rows)


def between_seeds() -> Table:
    """VGG: the factor by which a pair differs between two seeds, by decay."""
    rows: list[Row] = []
    for one, other in combinations(seeds("vgg"), 2):
        ratios = zip(finals("vgg", one).values(), finals("vgg", other).values(), strict=True)
        factors = (float(np.exp(np.median(np.abs(np.log(a / b))))) for a, b in ratios)
        rows.append((f"seeds {one} and {other}", *factors))
    return Table(("", *decay_columns("vgg")), tuple(rows), "median factor")


def few_directions() -> Table:
    """VGG: pairs of convolutions either of which has an effective rank below ten, and accuracy."""
    return decay_table(
        "at the end",
        "vgg",
        {
            "pairs with fewer than ten directions": narrow_pairs,
            "held-out images right": lambda ds: float(ds["validation_accuracy"][-1]),
        },
    )


def narrow_pairs(ds: xr.Dataset) -> int:
    rank = ds.isel(step=[-1]).rankscope.effective_rank().isel(step=0)
    near = ds.isel(pair=np.flatnonzero(ds["pair_kind"].to_numpy() == "conv"))
    ends = zip(near["earlier"].to_numpy(), near["later"].to_numpy(), strict=True)
    return sum(float(rank.sel(matrix=list(pair)).min()) < FEW for pair in ends)


def unet_and_lstm() -> Table:
    """UNet and LSTM: final alignment by decay. The layer tconv1 has a single direction."""
    unet, lstm = finals("unet"), finals("lstm")
    narrow = unet[0]["later"].to_numpy() == "tconv1"
    cell = np.array([str(name).endswith("[g]") for name in lstm[0]["pair"].to_numpy()])
    rows = {
        "UNet, all pairs": unet,
        "UNet, into tconv1": chosen(unet, narrow),
        "UNet, others": chosen(unet, ~narrow),
        "UNet, raw": raw_finals("unet"),
        "LSTM, cell gate": chosen(lstm, cell),
        "LSTM, other gates": chosen(lstm, ~cell),
        "LSTM, raw": raw_finals("lstm"),
    }
    return response_table("a / background of UNet and LSTM", "lstm", rows)


def shown_pairs() -> Table:
    """The pairs that figure 5 shows, by decay in rising order."""
    rows: list[Row] = []
    for network in ("vgg", "unet", "lstm", "lm"):
        for seed in seeds(network):
            pair = str(sweep(network, seed)[0].attrs["shown_pair"])
            values = (float(each.sel(pair=pair)) for each in finals(network, seed).values())
            rows.append((network, seed, pair, *values))
    decays = ("none", "second", "third", "largest")
    return Table(("network", "seed", "pair", *decays), tuple(rows), "a / background by decay")


def lm_kinds() -> Table:
    """Transformer: final alignment by decay, of queries with keys and of the other pairs."""
    of = finals("lm")
    kinds = of[0]["pair_kind"].to_numpy()
    return response_table("a / background of the Transformer", "lm", _by_kind(of, kinds))


def lm_up_to_one() -> Table:
    """Transformer: the same up to a decay of 1."""
    of = {decay: each for decay, each in finals("lm").items() if decay <= 1}
    rows = tuple((name, *response(those)) for name, those in _by_kind(of, _kinds(of)).items())
    columns = ("median pair", *decay_columns("lm")[: len(of)], "Spearman", f"rise by {STEP:g}")
    return Table(columns, rows, "a / background up to a decay of 1")


def _kinds(of: Finals) -> np.ndarray:
    kinds: np.ndarray = of[0]["pair_kind"].to_numpy()
    return kinds


def _by_kind(of: Finals, kinds: np.ndarray) -> dict[str, Finals]:
    return {
        "all": of,
        "q-k": chosen(of, kinds == "qk"),
        "other than q-k": chosen(of, kinds != "qk"),
        "inside the MLP": chosen(of, kinds == "w1-w2"),
    }


def overlaps_by_rank() -> Table:
    """Transformer: overlaps of single directions of q-k, and of the first ten inside the MLP."""

    def of(ds: xr.Dataset, kind: str, *ranks: int) -> xr.DataArray:
        end = ds["alignment"].isel(step=-1)[ds["pair_kind"].to_numpy() == kind]
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

    def live(ds: xr.Dataset) -> np.ndarray:
        packed = [str(name).endswith("attn.qkv") for name in ds["matrix"].to_numpy()]
        S = ds["singular_values"].isel(step=-1, matrix=np.flatnonzero(packed))
        counts: np.ndarray = (S / S.isel(k=0) > LIVE).sum("k").to_numpy()
        return counts

    return decay_table(
        "of all heads of a layer together",
        "lm",
        {"fewest": lambda ds: int(live(ds).min()), "most": lambda ds: int(live(ds).max())},
    )


def vanished_heads() -> Table:
    """Transformer at decay 10: pairs of heads whose queries or keys have vanished, and the rest."""
    ds, of = sweep("lm")[10.0], finals("lm")
    largest = dict(
        zip(ds["matrix"].to_numpy(), ds["singular_values"][-1, :, 0].values, strict=True)
    )
    ends = zip(ds["earlier"].to_numpy(), ds["later"].to_numpy(), strict=True)
    weak = np.array([min(largest[u], largest[v]) < VANISHED for u, v in ends])
    layers = {str(name).partition(".attn")[0] for name in ds["pair"].to_numpy()[weak]}
    title = f"vanished: largest singular value below {VANISHED:g}, in {', '.join(sorted(layers))}"
    return response_table(
        title, "lm", {"vanished": chosen(of, weak), "without them": chosen(of, ~weak)}
    )
