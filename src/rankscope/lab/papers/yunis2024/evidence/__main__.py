"""Print measurements: `python -m rankscope.lab.papers.yunis2024.evidence [Y5 ...] [--all]`."""

from rankscope.lab.papers.yunis2024 import study
from rankscope.lab.papers.yunis2024.evidence import alignment, losses, ranks
from rankscope.lab.reporting.evidence import DataMeasure, Measure, main

MEASURES: dict[str, tuple[Measure, ...]] = {
    "Y1": (ranks.unet_leads,),
    "Y2": (ranks.lm_falls,),
    "Y3": (alignment.at_chance,),
    "Y3b": (alignment.lm_peaks_by_kind,),
    "Y5": (alignment.trends, alignment.shown_pairs, alignment.lm_overlaps),
    "Y6": (losses.unet_costs, losses.lm_course),
    "Y7": (),
    "Y8": (ranks.label_spectra,),
    "Y9": (ranks.grokking_drops,),
    "Y10": (alignment.lm_kinds_by_decay,),
    "Y11": (alignment.centres,),
    "Y12": (ranks.vgg_seed_ranges,),
}
WITH_DATA: dict[str, tuple[DataMeasure, ...]] = {
    "Y7": (losses.token_counts, losses.linear_denoisers)
}

if __name__ == "__main__":
    main(study("paper"), MEASURES, with_data=WITH_DATA)
