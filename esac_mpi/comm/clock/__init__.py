"""Work as ranks go through it: cluster.py has ranks, nodes and their network, generations.py the program's order with barriers,
tasks.py its order without, task_order.py which task follows from which, costs.py times that generations can be made of.

What a run has recorded (`esac_mpi.analysis.clock`), or what was measured before it begins (`training/forecast`), goes through it.
"""
