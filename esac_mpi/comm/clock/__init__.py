"""Simulate a run's wall clock on a cluster, from times that were recorded or measured.

cluster.py has ranks, nodes and their network; generations.py the program's order with barriers,
tasks.py the one without; task_order.py which task follows from which; costs.py times of which
generations can be made. Used by `esac_mpi.analysis.clock` (a recorded run) and `training/forecast`
(measured before a run).
"""
