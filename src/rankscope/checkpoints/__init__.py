"""Checkpoints on disk: names, shapes and formats at once, numbers one tensor at a time."""

from rankscope.checkpoints.checkpoint import Checkpoint as Checkpoint
from rankscope.checkpoints.natural_order import natural_order as natural_order
from rankscope.checkpoints.opening import open_checkpoint as open_checkpoint
from rankscope.checkpoints.tensors import StoredTensor as StoredTensor
