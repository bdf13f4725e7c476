"""Searches without I/O: `ask` hands out work, `tell` takes in the answer."""
