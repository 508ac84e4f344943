"""Batches for evaluation that fit into memory."""

from collections.abc import Iterator

from rankscope.lab.training.task import Batch

EVALUATION_BATCH = 500


def batches(samples: Batch, *, most: int = EVALUATION_BATCH) -> Iterator[Batch]:
    """Split the rows of all tensors into batches of nearly equal size, at most `most` rows each."""
    parts = -(-len(samples[0]) // most)
    return zip(*(tensor.tensor_split(parts) for tensor in samples), strict=True)
