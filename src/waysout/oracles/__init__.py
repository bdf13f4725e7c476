"""Oracles: trained models asked in batches, loaded, probed and cached.

`load.load_model` reads a model file, `adapt.as_oracle` turns a model or a function into an oracle,
`probe.probe` tries it before anything is spent, and `cache.CachedOracle` never asks a row twice.
The model libraries are imported on use.
"""
