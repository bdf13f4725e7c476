"""The problem made exact: rows, rules, keys, distances, budgets and results. numpy only."""
