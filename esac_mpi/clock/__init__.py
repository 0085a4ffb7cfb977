"""Generations as ranks go through them: cluster.py has ranks, nodes and their network, generations.py the program's order.

What a run has recorded (`esac_mpi.analysis.clock`), or what was measured before it begins (`esac_mpi.forecast`), goes through it.
"""
