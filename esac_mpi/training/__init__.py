"""A training: session, loop, set-up, saving, evaluation, warm start, the check with its forecast.

Begin with: session.py, then loop.py.
"""
