"""Measurements behind the claims: `python -m rankscope.lab.papers.yunis2024.evidence`."""
