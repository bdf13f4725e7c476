"""Methods to be compared with: they ask the oracle and no LLM."""
