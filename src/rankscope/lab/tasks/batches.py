"""Samples that are looked at outside training, in batches that fit into memory."""

from collections.abc import Iterator

from rankscope.lab.training.task import Batch

EVALUATION_BATCH = 500


def batches(samples: Batch, *, most: int = EVALUATION_BATCH) -> Iterator[Batch]:
    """Rows of all tensors together, at most so many at once, as evenly as can be."""
    parts = -(-len(samples[0]) // most)
    return zip(*(each.tensor_split(parts) for each in samples), strict=True)
