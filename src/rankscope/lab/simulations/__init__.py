"""Runs of the theory on toy tasks: flows, Algorithm 1 and what goes with them, to the store."""
