"""Experiments: plans of many searches, run once and resumable, and the tables made of them."""
