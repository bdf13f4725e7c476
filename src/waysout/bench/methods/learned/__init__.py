"""Baselines that learn from the known rows first, with PyTorch."""
