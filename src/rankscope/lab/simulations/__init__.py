"""Runs of the theory on toy tasks: gradient flows, Algorithm 1 and checks of assumptions."""
