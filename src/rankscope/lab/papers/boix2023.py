"""Boix-Adsera, Littwin, Abbe, Bengio, Susskind: Transformers learn through gradual rank increase.

Each of its experiments is judged for itself.
"""

from rankscope.lab.catalogue import experiments_of
from rankscope.lab.experiment import Scale
from rankscope.lab.paper import Paper


def paper(scale: Scale) -> Paper:
    return Paper(
        name="boix2023",
        title="Transformers learn through gradual rank increase",
        scale=scale,
        experiments=experiments_of("boix2023", scale),
    )
