"""Waysout: many different, validated, actionable ways from a model's no to a yes."""

__version__ = "0.1.0"
