"""LLM backends: one request in, one reply out."""
