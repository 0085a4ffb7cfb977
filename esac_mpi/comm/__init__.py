"""The ranks of a run: what travels between them, who does what, the clock of computed ranks.

May import: the folders below it, host to record. mpi.py imports mpi4py, for world.py and its parts.
Begin with: world.py. contracts.py, virtual_time.py, schedule.py and clock/ need no MPI.
"""
