"""Experiments as files: what they cost, and how they are run, drawn and submitted."""
