"""Yunis et al. 2024, Rank Minimization, Alignment and Weight Decay in Neural Networks."""
