"""Speed, ours against peers in the same run: a file a benchmark; for tools/bench.py, which sets one BLAS thread before numpy."""
