"""Pure functions on arrays: evolution, genetics, selection, distributions, noise, policy, kernels.

May import: host, config.
Begin with: evolution.py; kernels.py has what is compiled, from _kernels.c.
"""
