"""Searches that never call anybody: `ask` hands out work, `tell` takes the answer in."""
