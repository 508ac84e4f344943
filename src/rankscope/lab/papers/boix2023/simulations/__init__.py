"""Runs of the paper's toy models: flows, Algorithm 1, perturbations."""
