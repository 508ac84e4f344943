"""The findings on the committed results: they run, and agree with verdicts and closed forms."""

import json
import math
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from findings import __main__ as command
from findings.alignment import random_share
from findings.baselines import Bigram, denoising_loss
from findings.factors import parts_of
from findings.runs import RESULTS
from rankscope.lab.verdict import Cell, Table

Rows = list[list[Cell]]


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Table]]:
    """Every finding without data, computed once: claim -> function -> table."""
    return {
        claim: {finding.__name__: finding() for finding in found}
        for claim, found in command.FINDINGS.items()
    }


@cache
def verdict(folder: str, claim: str) -> dict:
    stored = json.loads((RESULTS / folder / "verdicts.json").read_text())
    return next(each for each in stored["verdicts"] if each["claim"] == claim)


def evidence(folder: str, claim: str, *, network: str | None = None) -> Rows:
    """The rows of the first table behind a verdict."""
    rows = verdict(folder, claim)["tables"][0]["rows"]
    return [row for row in rows if network is None or row[0] == network]


def share(count: Cell) -> float:
    """0.5 of "3 of 6"."""
    met, every = str(count).split(" of ")
    return int(met) / int(every)


def listed(numbers: Cell) -> list[float]:
    """[0.1, 2] of "0: 0.1, 0.1: 2", and of "0.1, 2"."""
    return [float(each.split(": ")[-1]) for each in str(numbers).split(", ")]


def test_every_finding_is_a_whole_table_under_a_sentence(tables) -> None:
    for claim, found in command.FINDINGS.items():
        for finding in found:
            table = tables[claim][finding.__name__]
            assert command.sentence(finding).endswith("."), finding.__name__
            assert table.rows and table.title
            assert {len(row) for row in table.rows} == {len(table.columns)}
            numbers = [cell for row in table.rows for cell in row if isinstance(cell, float)]
            assert np.isfinite(numbers).all(), finding.__name__


def test_no_number_is_cut_on_a_narrow_terminal(tables, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console = command.wide_console()
    for of_claim in tables.values():
        for name, table in of_claim.items():
            command.print_table(name, table, console)
    printed = capsys.readouterr().out
    assert "conv13 > head" in printed and "\u2026" not in printed


# Against the tables of evidence, which `rankscope results keep` wrote.


def test_matrices_that_grow_and_fall_are_those_of_the_verdicts(tables) -> None:
    (_, _, *counts) = tables["Y1"]["leads"].rows[0]
    assert share(counts[0]) == pytest.approx(evidence("yunis2024/unet", "Y1")[0][2])
    (matrix, *_), *none = tables["Y1"]["trailing"].rows
    assert evidence("yunis2024/unet", "Y1")[0][-1] == f"1 of 15: {matrix}" and not none
    falls = {row[1]: row[3] for row in tables["Y2"]["falls"].rows}  # at decay 0.1
    _, _, of_all, median, _ = evidence("yunis2024/lm", "Y2")[0]
    assert share(falls["falls by more than 0.01"]) == pytest.approx(of_all)
    assert falls["median change"] == pytest.approx(median)
    assert len(tables["Y2"]["least_falls"].rows) == round(50 * (1 - of_all))


def test_pairs_at_chance_are_those_of_y3(tables) -> None:
    rows = tables["Y3"]["at_chance"].rows
    kept = evidence("yunis2024", "Y3")
    for (network, seed, _, at_chance, weak), stored in zip(rows, kept, strict=False):
        assert [network, seed] == stored[:2]
        assert at_chance == pytest.approx(stored[2]) and share(weak) == pytest.approx(stored[4])
    together = rows[len(kept)]
    assert together[0] == "together"


def test_random_pairs_are_called_at_chance_as_often_as_the_normal_law_says() -> None:
    deviation = math.sqrt((math.pi / 2 - 1) / 10)  # of the mean of ten half-normals over its mean
    assert random_share() == pytest.approx(math.erf(0.25 / deviation / math.sqrt(2)), abs=0.01)


@pytest.mark.parametrize(
    ("network", "function", "rows"),
    [
        ("vgg", "vgg", ("seed 0", "seed 1", "seed 2")),
        ("unet", "unet_and_lstm", ("UNet, all pairs",)),
        ("lm", "lm_kinds", ("all",)),
    ],
)
def test_responses_to_decay_are_those_of_y5(tables, network, function, rows) -> None:
    found = {row[0]: row[1:] for row in tables["Y5"][function].rows}
    for name, stored in zip(rows, evidence(f"yunis2024/{network}", "Y5"), strict=True):
        *medians, correlation, rises = found[name]
        assert medians == pytest.approx(listed(stored[3]), rel=5e-3)  # printed to three digits
        assert (correlation, share(rises)) == pytest.approx((stored[4], stored[5]))


@pytest.mark.parametrize("network", ["vgg", "unet", "lm"])
def test_gaps_are_those_of_y6(tables, network: str) -> None:
    means = [row for row in tables["Y6"][f"{network}_gaps"].rows if row[1] == "mean"]
    for found, stored in zip(means, evidence(f"yunis2024/{network}", "Y6"), strict=True):
        assert found[-1] == pytest.approx(stored[3])
        assert list(found[2:-1]) == pytest.approx(listed(stored[4]), rel=5e-3)


def test_losses_at_the_largest_decay_are_those_of_y7(tables) -> None:
    stored = {row[0]: row for row in evidence("yunis2024", "Y7")}
    for network, decay, *_, training, _, constant in tables["Y7"]["norms"].rows:
        assert [decay, training, constant] == [stored[network][i] for i in (2, 4, 5)]


def test_layers_are_lower_by_as_much_as_y8_says(tables) -> None:
    ends = {(seed, name): end for seed, name, _, end in tables["Y8"]["ranks"].rows}
    for seed, _, layers, *_ in evidence("yunis2024/mlp", "Y8"):
        for name, by in map(str.split, str(layers).split(", ")):
            assert ends[seed, name] == pytest.approx(float(by), rel=5e-3)


def test_drops_and_jumps_are_those_of_y9(tables) -> None:
    found = {(row[0], row[1]): row for row in tables["Y9"]["drops"].rows}
    spaced = {row[0]: row[1:] for row in tables["Y9"]["spacings"].rows}["0.05"]
    for decay, seed, drop, jump, _, end, accuracy in evidence("yunis2024/grok", "Y9"):
        _, _, when, at, _, _, rank, right = found[decay, seed]
        assert at == round(10**drop) and (rank, right) == pytest.approx((end, accuracy))
        assert when == (None if jump is None else round(10**jump))
        if jump is not None:
            assert spaced[seed] == pytest.approx(drop - jump)


def test_kinds_and_centres_are_those_of_y10_and_y11(tables) -> None:
    at_base = {row[0].split(" (")[0]: row[2] for row in tables["Y10"]["kinds_by_decay"].rows}
    for kind, value in map(str.split, evidence("yunis2024/lm", "Y10")[0][-1].split(", ")):
        assert at_base[kind] == pytest.approx(float(value), rel=5e-3)
    rows = tables["Y11"]["centres"].rows
    for (network, seed, raw, unit), stored in zip(rows, evidence("yunis2024", "Y11"), strict=True):
        assert [network, seed] == stored[:2]
        assert (share(raw), share(unit)) == pytest.approx((stored[2], stored[4]))


def test_seeds_differ_by_no_more_than_y12_counts(tables) -> None:
    largest = tables["Y12"]["seed_ranges"].rows[0][2]  # at the base decay
    assert evidence("yunis2024/vgg", "Y12", network="vgg")[0][1] == 1
    assert largest <= 0.05


def test_trials_are_the_sums_of_those_of_b5(tables) -> None:
    kept = evidence("boix2023/assumptions", "B5")
    for alpha, trials, back, alone, alone_back, _ in tables["B5"]["trials"].rows:
        rows = [row for row in kept if row[2] == alpha]
        assert (trials, back) == (sum(row[4] for row in rows), sum(row[7] for row in rows))
        apart = np.array([str(row[8]).split(" of ") for row in rows], int)
        assert [alone_back, alone] == apart.sum(0).tolist()


def test_blocks_and_heads_are_those_of_b7_to_b9(tables) -> None:
    networks = {
        (claim, each["network"]): each["value"]
        for claim in ("B7", "B8", "B9")
        for each in verdict("boix2023/vit-cifar10", claim)["networks"]
    }
    judged = tables["B7"]["growth"].rows[0]
    above = tables["B9"]["low_ranks"].rows[-1]
    for scale, blocks, heads in zip((1, 0.3, 0.1, 0.03), judged[1:], above[1:], strict=True):
        assert blocks / 6 == pytest.approx(networks["B7", f"vit/scale-{scale:g}, K-Q"])
        assert 1 - heads / 48 == pytest.approx(networks["B9", f"vit/scale-{scale:g}, V-O"])
    _, *counts = tables["B8"]["readings"].rows[0]
    for count, kind in zip(counts, ("K-Q", "V-O"), strict=False):
        assert count / 6 == pytest.approx(networks["B8", f"vit, {kind}"])
    stored = evidence("boix2023/vit-cifar10", "B8")
    found = [row for row in tables["B8"]["starts"].rows if row[1] != "median"]
    for (_, _, *ranks, rho, _, _), (_, _, _, correlation, *by_scale) in zip(
        found, stored, strict=True
    ):
        assert (rho, *ranks[::-1]) == pytest.approx((correlation, *by_scale))


# What is computed here.


def test_the_parts_of_a_products_change_make_it_up() -> None:
    generator = torch.Generator().manual_seed(0)
    K0, Q0, K, Q = torch.randn(4, 2, 3, 5, generator=generator, dtype=torch.float64)
    linear, quadratic = parts_of(K0, Q0, K, Q)
    assert torch.allclose(linear + quadratic, K.mT @ Q - K0.mT @ Q0)
    doubled = parts_of(K0, Q0, 2 * K - K0, 2 * Q - Q0)
    assert torch.allclose(doubled.linear, 2 * linear)
    assert torch.allclose(doubled.quadratic, 4 * quadratic)


def test_the_quadratic_part_outgrows_the_linear_one_as_rank_falls(tables) -> None:
    rows = tables["B7"]["parts_over_time"].rows
    _, _, change, linear, _, size = rows[0]
    assert size < 0.1 and change == pytest.approx(linear, abs=0.01)
    _, _, change, _, quadratic, size = rows[-1]
    assert size > 1 and change == pytest.approx(quadratic, abs=0.01) and change < rows[0][2]


def test_chances_of_the_tokens_after_any_other_sum_to_one() -> None:
    text = np.random.default_rng(0).integers(0, 6, 50)
    bigram = Bigram.fit(text, 8)  # 6 and 7 never occur
    for earlier in range(8):
        chances = [math.exp(-bigram.loss(np.array([[earlier, later]]))) for later in range(8)]
        assert sum(chances) == pytest.approx(1)


def test_counts_of_pairs_as_written_out() -> None:
    bigram = Bigram.fit(np.array([0, 1, 0, 1, 0, 2]), 3)  # 01 01 02, 10 10
    # 0 is followed twice by 1, once by 2; contexts: 0 after one token, 1 after one, 2 after one
    chance = (2 - 0.75) / 3 + 0.75 * 2 / 3 / 3
    assert bigram.loss(np.array([[0, 1]])) == pytest.approx(-math.log(chance))


def test_the_loss_of_a_linear_guess_is_that_of_least_squares() -> None:
    source = np.random.default_rng(0)
    kept, variances = np.array([0.9, 0.3]), np.array([2.0, 0.1])
    missed = []
    for a in kept:
        x, noise = source.standard_normal((2, 200_000, 2))
        noisy = math.sqrt(a) * np.sqrt(variances) * x + math.sqrt(1 - a) * noise
        guess = noisy * (noisy * noise).sum(0) / (noisy**2).sum(0)
        missed.append(np.mean((noise - guess) ** 2))
    found = denoising_loss(torch.from_numpy(variances), torch.from_numpy(kept))
    assert found == pytest.approx(np.mean(missed), rel=0.01)


# The command.


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["findings", *arguments])
    command.main()


def test_without_a_claim_it_lists_them(monkeypatch, capsys) -> None:
    run(monkeypatch)
    printed = capsys.readouterr().out
    places = [printed.index(f" {claim} ") for claim in command.FINDINGS]
    assert all(one < other for one, other in pairwise(places))


def test_a_claim_prints_its_tables_and_says_what_data_would_add(
    monkeypatch, capsys, tables
) -> None:
    run(monkeypatch, "Y7")
    printed = capsys.readouterr().out
    assert "--data FOLDER" in " ".join(printed.split())
    for row in tables["Y7"]["norms"].rows:
        assert f"{row[4]:.4g}" in printed


def test_an_unknown_claim_is_refused_with_those_there_are(monkeypatch, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "Y99")
    assert "nothing on Y99; choose from Y1" in " ".join(capsys.readouterr().err.split())


def test_the_folder_of_results_is_that_of_the_repository() -> None:
    assert (Path(__file__).parents[2] / "results").samefile(RESULTS)
