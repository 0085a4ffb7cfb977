"""Who evaluates what: members go to nodes before a generation, and to the ranks of a node as they become free."""

import heapq

import numpy as np


def deal(expected: np.ndarray, capacity: np.ndarray) -> list[np.ndarray]:
    """Deal members to nodes, each to the one that would be done with it first, longest first.

    expected: durations [n], in any unit; equal ones keep their order. capacity: ranks of each node that evaluate [nodes]; a
    node with 0 gets nothing, unless all have 0. Returns each node's members in the order in which they are to be taken.
    """
    longest_first = np.argsort(-expected, kind="stable")
    ranks = np.maximum(capacity, 0) if (capacity > 0).any() else np.ones_like(capacity)
    if ranks.size == 1:
        return [longest_first]
    shares: list[list[int]] = [[] for _ in ranks]
    heap = [(0.0, node) for node in range(ranks.size) if ranks[node]]  # (load a rank, node)
    for i in longest_first:
        load, node = heap[0]
        shares[node].append(int(i))
        heapq.heapreplace(heap, (load + expected[i] / ranks[node], node))
    return [np.array(share, np.int64) for share in shares]
