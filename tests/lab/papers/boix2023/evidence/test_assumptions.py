import numpy as np

from lab.papers.archived import archive, table
from rankscope.lab.papers.boix2023.claims.assumptions import PERTURBED_RUNS, undisturbed
from rankscope.lab.papers.boix2023.evidence.assumptions import trials


def test_trials_are_counted_over_all_tasks_and_seeds() -> None:
    """Compare with norms of the stored courses of z."""
    runs, _ = archive("boix2023").select(PERTURBED_RUNS)
    for alpha, count, near, alone, alone_near, farthest in table(trials).rows:
        keys = [key for key in runs if f"1e{key.variant['log10_alpha']:g}" == alpha]
        distances, undisturbed_trials = [], []
        for ds in (ds for key in keys for ds in runs[key].values()):
            z, reference = (
                ds[f"{name}_z"][:, -1].to_numpy() for name in ("perturbed", "unperturbed")
            )
            apart, size = (np.sqrt(np.nansum(v**2, axis=1)) for v in (z - reference, reference))
            distances += (apart / size).tolist()
            undisturbed_trials += undisturbed(ds).tolist()
        within = np.array(distances) <= 0.05
        mask = np.array(undisturbed_trials)
        assert (count, near) == (len(within), within.sum())
        assert (alone, alone_near) == (mask.sum(), within[mask].sum())
        assert farthest is None or np.isclose(farthest, np.array(distances)[mask].max(), rtol=1e-2)
