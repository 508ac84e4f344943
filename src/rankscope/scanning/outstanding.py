"""Remarks on what stands out among the matrices of a checkpoint, and why."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from rankscope.scanning.adapters import LORA
from rankscope.scanning.matrix import MatrixScan

NUMBER = re.compile(r"\d+")
PEERS = 4  # matrices of one role that make a median
DEVIATIONS = 5.0  # robust deviations from the median
RELATIVE = 0.25  # and at least this far from it
DOMINANT = 0.5  # share of the energy in one direction
ZERO = 1e-9  # of the largest value
LEAST = 8  # values of a spectrum that is worth a remark
HEAVY = 2.0  # tail exponent below which the variance of the tail diverges


def remarks(matrices: Sequence[MatrixScan]) -> dict[str, str]:
    """Return a remark on each matrix by name; empty if it is like its peers.

    Peers are the matrices whose names differ in numbers only, such as a projection of all layers.
    """
    lines: dict[str, list[str]] = {m.name: list(_alone(m)) for m in matrices}
    roles: dict[tuple[str, int, int], list[MatrixScan]] = {}
    for matrix in matrices:
        roles.setdefault((NUMBER.sub("#", matrix.name), matrix.m, matrix.n), []).append(matrix)
    for peers in roles.values():
        if len(peers) < PEERS:
            continue
        for quantity, values in (
            ("norm", [m.size for m in peers]),
            ("stable rank", [_stable_rank(m) for m in peers]),
        ):
            for matrix, remark in zip(peers, _against(np.array(values), quantity), strict=True):
                if remark:
                    lines[matrix.name].append(remark)
    return {name: "; ".join(texts[:2]) for name, texts in lines.items()}


def _alone(matrix: MatrixScan) -> Iterable[str]:
    """Yield remarks that need no peers."""
    norm, S = matrix.size, matrix.spectrum
    if matrix.note:
        yield matrix.note
    if matrix.compared and matrix.change is None:
        return
    if not np.isfinite(norm):
        yield "NaN or Inf"
        return
    if norm == 0:
        yield "unchanged" if matrix.compared else "all zero"
        return
    if len(S) < LEAST or not np.isfinite(S).all():
        return
    if matrix.kind == LORA:
        return  # of low rank by design
    share = float((S[0] / norm) ** 2)
    if share > DOMINANT:
        yield f"one direction holds {share:.0%}"
    whole = len(S) == min(matrix.m, matrix.n)
    if whole and (zeros := int((ZERO * S[0] >= S).sum())):
        yield f"{zeros} of {len(S)} directions are zero"


def _against(values: np.ndarray, quantity: str) -> list[str]:
    """Return for each value how far it is from the median, or "" if it is near."""
    finite = values[np.isfinite(values)]
    if len(finite) < PEERS:
        return [""] * len(values)
    median = float(np.median(finite))
    spread = 1.4826 * float(np.median(np.abs(finite - median)))
    texts = []
    for value in values:
        is_far = np.isfinite(value) and median > 0
        is_far = is_far and abs(value - median) > max(DEVIATIONS * spread, RELATIVE * median)
        texts.append(f"{quantity} {value / median:.2g}x its peers'" if is_far else "")
    return texts


def _stable_rank(matrix: MatrixScan) -> float:
    S = matrix.spectrum
    return (matrix.size / float(S[0])) ** 2 if len(S) and S[0] > 0 else np.nan
