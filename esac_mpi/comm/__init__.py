"""The ranks of a run: what travels between them, who does what, the clock of computed ranks.

Begin with: world.py; mpi.py imports mpi4py. contracts.py, virtual_time.py, schedule.py and
clock/ need no MPI.
"""
