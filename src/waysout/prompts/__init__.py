"""Prompts: what an LLM is asked, what its reply may look like, and what is made of it."""
