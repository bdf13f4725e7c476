"""Many people: a table streamed in, workers that search, Parquet parts out, resumed row by row."""
