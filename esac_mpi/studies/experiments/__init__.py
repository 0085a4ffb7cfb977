"""Experiments as files: what they cost, how they are run and drawn, and their lists of jobs."""
