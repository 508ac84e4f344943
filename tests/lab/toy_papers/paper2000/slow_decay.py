"""A loss decays at two rates (paper2000)."""

from lab.toy_study import experiment

__all__ = ["experiment"]
