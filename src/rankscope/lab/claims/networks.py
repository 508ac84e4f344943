"""The claims of yunis2024, all in order, and those that each of its experiments can judge."""

from rankscope.lab.claims import (
    alignment,
    decay,
    filters,
    grokking,
    growth,
    high_decay,
    labels,
    ranks,
    truncation,
)
from rankscope.lab.experiment import Claim

CLAIMS: dict[str, Claim] = {
    "Y1": growth.large_values_grow_faster,
    "Y2": ranks.rank_falls,
    "Y3": alignment.alignment_is_weak,
    "Y3-median": alignment.alignment_is_weak_on_the_median,
    "Y3b": alignment.alignment_peaks_early,
    "Y4": decay.decay_lowers_rank,
    "Y5": decay.decay_strengthens_alignment,
    "Y6": truncation.top_half_approximates,
    "Y7": high_decay.high_decay_trains,
    "Y7-uncollapsed": high_decay.high_decay_trains_without_collapse,
    "Y8": labels.true_labels_give_lower_rank,
    "Y9": grokking.rank_drops_as_accuracy_jumps,
    "Y10": alignment.queries_and_keys_align_best,
    "Y11": filters.centre_of_filters_aligns_best,
    "Y12": ranks.seeds_agree,
}


def _without(*keys: str) -> dict[str, Claim]:
    return {key: claim for key, claim in CLAIMS.items() if key not in keys}


VGG = _without("Y8", "Y9", "Y10")
UNET = _without("Y8", "Y9", "Y10")
LSTM = _without("Y8", "Y9", "Y10", "Y11")
LM = _without("Y8", "Y9", "Y11")
MLP: dict[str, Claim] = {"Y8": CLAIMS["Y8"]}
GROK: dict[str, Claim] = {"Y9": CLAIMS["Y9"]}
