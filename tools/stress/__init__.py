"""Kills at random moments and configurations that make no sense; for torture.py and fuzz_config.py."""
