"""Figures of our own findings."""
