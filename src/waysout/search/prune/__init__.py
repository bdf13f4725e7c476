"""Pruning: candidates that say nothing new are dropped before the oracle is asked."""
