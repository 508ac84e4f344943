"""Boix-Adsera et al. 2023, Transformers learn through gradual rank increase."""
