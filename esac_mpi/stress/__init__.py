"""Kills at random moments and configurations that make no sense; for tools/torture.py and tools/fuzz_config.py."""
