"""Scans of checkpoints: every matrix of models that exist already, one tensor at a time."""

from rankscope.scanning.matrix import MatrixScan as MatrixScan
from rankscope.scanning.results import CheckpointScan as CheckpointScan
from rankscope.scanning.results import Scan as Scan
from rankscope.scanning.scanner import scan as scan
