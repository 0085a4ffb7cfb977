"""Order results by a plain event queue, the reference for virtual time."""

import heapq


def queue(durations, workers, count):
    """Return (worker, end) of the first results; durations(worker, number of its task)."""
    heap = [(durations(worker, 0), worker, 0) for worker in range(workers)]
    heapq.heapify(heap)
    told = []
    while len(told) < count:
        end, worker, number = heapq.heappop(heap)
        told.append((worker, end))
        heapq.heappush(heap, (end + durations(worker, number + 1), worker, number + 1))
    return told
