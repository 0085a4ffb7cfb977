"""Experiments as files: what they are, what they cost, how they are carried out, drawn and submitted; for tools/experiment.py."""
