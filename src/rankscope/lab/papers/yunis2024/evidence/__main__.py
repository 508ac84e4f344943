"""Print measurements: `python -m rankscope.lab.papers.yunis2024.evidence [Y5 ...] [--all]`."""

from rankscope.lab.papers.yunis2024 import study
from rankscope.lab.papers.yunis2024.evidence import (
    alignment,
    baselines,
    decay,
    grokking,
    labels,
    losses,
    ranks,
    truncation,
)
from rankscope.lab.reporting.evidence import DataMeasure, Measure, main

MEASURES: dict[str, tuple[Measure, ...]] = {
    "Y1": (ranks.unet_leads, ranks.unet_exceptions),
    "Y2": (ranks.lm_falls, ranks.lm_exceptions),
    "Y3": (alignment.at_chance, alignment.strong_pairs),
    "Y3b": (
        alignment.lm_peaks_by_kind,
        alignment.lm_peaks_by_decay,
        losses.lm_losses,
        alignment.lstm_jumps,
        alignment.lstm_peaks,
    ),
    "Y5": (
        decay.vgg_response,
        decay.vgg_seeds,
        decay.vgg_narrow_pairs,
        decay.unet_and_lstm_response,
        decay.shown_pairs,
        decay.lm_response,
        decay.lm_response_up_to_one,
        decay.lm_overlaps,
        decay.lm_live_directions,
        decay.lm_vanished_heads,
    ),
    "Y6": (
        truncation.vgg_gaps,
        truncation.vgg_costs,
        truncation.unet_gaps,
        truncation.unet_costs,
        truncation.lm_gaps,
        truncation.lm_course,
    ),
    "Y7": (losses.norms, losses.lm_losses),
    "Y8": (labels.ranks, labels.singular_values),
    "Y9": (grokking.drops, grokking.spacings, grokking.single_snapshots),
    "Y10": (alignment.lm_kinds_by_decay,),
    "Y11": (alignment.centres,),
    "Y12": (ranks.vgg_seed_ranges,),
}
WITH_DATA: dict[str, tuple[DataMeasure, ...]] = {
    "Y7": (baselines.token_counts, baselines.linear_denoisers)
}

if __name__ == "__main__":
    main(study("paper"), MEASURES, with_data=WITH_DATA)
