"""Assign evaluations: members to nodes before a generation, to a node's ranks as they free up."""

import heapq

import numpy as np

WASTE = 0.1  # share of the ranks' time that is worth a remark


def deal(expected: np.ndarray, capacity: np.ndarray) -> list[np.ndarray]:
    """Deal members to nodes, longest first, each to the node that would end it first.

    expected: durations [n], in any unit; equal ones keep their order. capacity: evaluating ranks of
    each node [nodes]; a node with 0 gets nothing, unless all have 0. Returns each node's members in
    the order in which they are to be taken.
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


def with_trials(expected: np.ndarray, episodes: int, trials: int) -> np.ndarray:
    """Return expected times of members, of `episodes` each, then trials, of one [..., n + trials].

    expected: of the members [..., n].
    """
    one = expected.mean(axis=-1, keepdims=True) / episodes
    return np.concatenate([expected, np.repeat(one, trials, axis=-1)], axis=-1)


def idle(count: int, ranks: int) -> str:
    """Return a message on ranks that can never have work at once, empty if there are none."""
    return f"{ranks - count} rank(s) never have one: {count} would do" if ranks > count else ""


def fit(count: int, ranks: int, what: str = "members") -> tuple[str, str]:
    """Count the turns that `ranks` ranks take for a generation, and a better number, if any.

    Assumes equal times: ceil(count / turns) ranks need as many turns, and none waits in the last.
    """
    turns = -(-count // ranks)
    found = f"{count} {what} a generation on {ranks} evaluating rank(s): {turns} turn(s)"
    if ranks > count:
        return found, idle(count, ranks)
    if count >= (1 - WASTE) * turns * ranks:
        return found, ""
    enough, faster = -(-count // turns), -(-count // (turns - 1))
    last = f"{count - (turns - 1) * ranks} of {ranks} have work in the last"
    better = f"{enough} take as many turns, " if enough < ranks else ""
    return found, f"{last}: {better}{faster} take {turns - 1}"
