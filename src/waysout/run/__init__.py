"""The driver: searches, one LLM, one oracle, a budget each; asynchronous inside, plain outside."""
