import numpy as np

from findings import assumptions


def test_trials_are_the_sums_of_those_of_b5(table, evidence) -> None:
    kept = evidence("boix2023/assumptions", "B5")
    for alpha, trials, back, alone, alone_back, _ in table(assumptions.trials).rows:
        rows = [row for row in kept if row[2] == alpha]
        assert (trials, back) == (sum(row[4] for row in rows), sum(row[7] for row in rows))
        apart = np.array([str(row[8]).split(" of ") for row in rows], int)
        assert [alone_back, alone] == apart.sum(0).tolist()
