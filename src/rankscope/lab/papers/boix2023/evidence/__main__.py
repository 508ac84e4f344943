"""Print measurements: `python -m rankscope.lab.papers.boix2023.evidence [B7 ...] [--all]`."""

from rankscope.lab.papers.boix2023 import study
from rankscope.lab.papers.boix2023.evidence import assumptions, factors, vit
from rankscope.lab.reporting.evidence import Measure, main

MEASURES: dict[str, tuple[Measure, ...]] = {
    "B5": (assumptions.trials,),
    "B7": (vit.early_ranks, factors.parts_over_time),
    "B9-first": (vit.exceptions_over_time,),
}

if __name__ == "__main__":
    main(study("paper"), MEASURES)
