"""Stored trainings made by hand: spectra of known rank, diagonals of A as given."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.yunis2024.runs import BASE
from rankscope.lab.running.run_key import RunKey

I = 100  # noqa: E741
DECAYS = (0, 0.1, 1, 10)


class PairCourse(NamedTuple):
    """One pair; `diagonal` is (step, i), of as many directions as the pair has."""

    earlier: str
    later: str
    diagonal: np.ndarray
    background: float = 0.1
    kind: str = "linear"
    label: str = ""


def flat(R: int, ranks: Sequence[int]) -> np.ndarray:
    """(step, R): at each step so many values of 1, the rest 0. Its NER is rank / R."""
    return (np.arange(R) < np.array(ranks)[:, None]).astype(np.float64)


def course(a: Sequence[float], *, R: int = 20, rest: float | None = None) -> np.ndarray:
    """(step, R): the first ten of the diagonal are a, the others `rest` (a too unless given)."""
    diagonal = np.tile(np.array(a, float)[:, None], (1, R))
    if rest is not None:
        diagonal[:, 10:] = rest
    return diagonal


def training_run(
    spectra: Mapping[str, np.ndarray] | None = None,
    pairs: Sequence[PairCourse] = (),
    *,
    loss: Sequence[float] = (1.0, 0.1),
    steps: Sequence[int] | None = None,
    parts: Mapping[str, str] | None = None,
    scalars: Mapping[str, Sequence[float]] | None = None,
    **attrs: Any,
) -> xr.Dataset:
    """Return a run by the contract of stored trainings. `loss` is spread evenly over it.

    A constant predictor's loss is 1, so the run is collapsed if `loss` ends at 0.95 or more.
    """
    spectra = spectra or {"fc": flat(10, [10] * (len(pairs[0].diagonal) if pairs else 2))}
    count = len(next(iter(spectra.values())))
    widest = max(values.shape[1] for values in spectra.values())
    singular = np.stack([_padded(values, widest) for values in spectra.values()], axis=1)
    widths = [values.shape[1] for values in spectra.values()]
    diagonals = [_padded(pair.diagonal, I) for pair in pairs]
    losses = np.interp(np.linspace(0, 1, count), np.linspace(0, 1, len(loss)), loss)
    variables: dict[str, Any] = {
        "singular_values": (("step", "matrix", "k"), singular.astype(np.float32)),
        "training_loss": ("step", losses),
        **{name: ("step", np.array(values)) for name, values in (scalars or {}).items()},
    }
    for name in ("alignment", "alignment_normalized"):
        stacked = np.stack(diagonals, axis=1) if pairs else np.empty((count, 0, I))
        backgrounds = np.tile([pair.background for pair in pairs], (count, 1))
        variables[name] = (("step", "pair", "i"), stacked)
        variables[f"{name}_background"] = (("step", "pair"), backgrounds)
    return xr.Dataset(
        variables,
        coords={
            "step": list(steps) if steps is not None else list(range(count)),
            "matrix": _names("matrix", list(spectra)),
            "m": ("matrix", np.array(widths)),
            "n": ("matrix", np.array([width + 5 for width in widths])),
            "part_of": _names("matrix", [(parts or {}).get(name, "") for name in spectra]),
            "pair": _names("pair", [_pair_name(pair) for pair in pairs]),
            "pair_kind": _names("pair", [pair.kind for pair in pairs]),
            "earlier": _names("pair", [pair.earlier for pair in pairs]),
            "later": _names("pair", [pair.later for pair in pairs]),
            "i": np.arange(1, I + 1),
        },
        attrs={"constant_loss": 1.0, "diverged_at": None, "declaration": {}, **attrs},
    )


def _pair_name(pair: PairCourse) -> str:
    return f"{pair.earlier} > {pair.later}" + (f" [{pair.label}]" if pair.label else "")


def seeds(ds: xr.Dataset) -> dict[int, xr.Dataset]:
    """Use the same run as each of three seeds."""
    return dict.fromkeys(range(3), ds)


# Entries of `Runs` and `AvailableRuns`.
Entries = dict[RunKey, Mapping[int, xr.Dataset]]


def decay_key(network: str, decay: float) -> RunKey:
    """Return the key of a declared run."""
    return RunKey(network, {"decay": float(decay)}, experiment=f"yunis2024/{network}")


def at_decay(network: str, decay: float, runs: xr.Dataset | Mapping[int, xr.Dataset]) -> Entries:
    """Return runs of one network at one decay, by seed; a Dataset alone is that of three seeds."""
    return {decay_key(network, decay): seeds(runs) if isinstance(runs, xr.Dataset) else runs}


def over_decays(network: str, *runs: xr.Dataset) -> Entries:
    """Return runs of one network at decay 0, 0.1, 1, 10, as far as there are runs."""
    return {decay_key(network, decay): seeds(run) for decay, run in zip(DECAYS, runs, strict=False)}


def judged(rule: Rule, runs: Entries) -> Verdict:
    """Judge a claim on runs that are all there."""
    return judge(rule, AvailableRuns(runs))


def judged_at_base(rule: Rule, network: str, run: xr.Dataset) -> Verdict:
    """Judge a claim on three seeds of one run at the network's base decay."""
    return judged(rule, at_decay(network, BASE[network], run))


def only(verdict: Verdict) -> NetworkVerdict:
    """Return the verdict on the single network."""
    (network,) = verdict.networks
    return network


def words(verdict: Verdict) -> dict[str, str]:
    """Return the word for each network."""
    return {network.label: network.word for network in verdict.networks}


def rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return the rows of the first table of evidence."""
    table = verdict.tables[0]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def chained(*diagonals: np.ndarray, **options: Any) -> xr.Dataset:
    """A run whose pairs are w0 > w1, w1 > w2, ..."""
    pairs = [PairCourse(f"w{n}", f"w{n + 1}", values) for n, values in enumerate(diagonals)]
    return training_run(pairs=pairs, **options)


def outcome(rule: Rule, *diagonals: np.ndarray) -> tuple[str, float | None]:
    """The mark and the value of a VGG whose chained pairs have these diagonals."""
    network = only(judged_at_base(rule, "vgg", chained(*diagonals)))
    return network.word, network.value


def _padded(values: np.ndarray, width: int) -> np.ndarray:
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=np.nan)


def _names(dim: str, names: list[str]) -> tuple[str, np.ndarray]:
    return dim, np.array(names, dtype=object)
