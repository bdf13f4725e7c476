"""Prompts: questions to an LLM, the format of its replies, and how they become edits."""
