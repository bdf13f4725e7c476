"""`waysout bench`: the laboratory on the command line."""
