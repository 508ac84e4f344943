import numpy as np

from lab.papers.archived import evidence, table
from rankscope.lab.papers.boix2023.claims.assumptions import B5
from rankscope.lab.papers.boix2023.evidence.assumptions import trials


def test_trials_are_the_sums_of_those_of_b5() -> None:
    judged = evidence("boix2023", B5)
    for alpha, count, back, alone, alone_back, _ in table(trials).rows:
        rows = [row for row in judged if row["alpha"] == alpha]
        assert (count, back) == (sum(row["of"] for row in rows), sum(row["1000"] for row in rows))
        apart = np.array([row["undisturbed"].split(" of ") for row in rows], int)
        assert [alone_back, alone] == apart.sum(0).tolist()
