"""What is done with a policy that a run left; simulator and torch are imported inside functions.

Begin with: evaluation.py and formats.py.
"""
