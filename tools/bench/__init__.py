"""Speed, ours against peers in the same run: a file a benchmark, for __main__.py."""
