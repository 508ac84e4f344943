"""Measurements behind the claims: `python -m rankscope.lab.papers.boix2023.evidence`."""
