"""Deciding claims: stored runs in, verdicts out."""
