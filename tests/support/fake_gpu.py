"""A GPU that is none: work is done later, in order; what is captured is recorded, and not done."""

from functools import partial

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Recorded(TorchDispatchMode):
    """Operations on memory that is there, kept with their arguments to be replayed."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        given = {
            **dict(zip((a.name for a in operation._schema.arguments), arguments, strict=False)),
            **(options or {}),
        }
        aliases = {a.name: a.alias_info for a in operation._schema.arguments if a.alias_info}
        written = [given[name] for name, alias in aliases.items() if alias.is_write]
        if not written:
            assert aliases, f"{operation} takes memory of its own"
            return operation(*arguments, **(options or {}))  # a view
        self.calls.append(partial(operation, *arguments, **(options or {})))
        return tuple(written) if len(written) > 1 else written[0]

    @torch.inference_mode()
    def replay(self):
        for call in self.calls:
            call()


class FakeGpu:
    """Work waits in a queue until asked whether it has ended; each question does `pace` of it.

    early: what is brought comes at once, before what runs has ended; else as late as it may.
    """

    def __init__(self, early=False, pace=3):
        self.early, self.pace, self.queue, self.graphs = early, pace, [], []

    def host(self, like):
        return torch.empty(like.shape, dtype=like.dtype)

    def bring(self, pairs):
        copies = [partial(to.copy_, source) for to, source in pairs]
        if self.early:
            for copy in copies:
                copy()
        else:
            self.queue += copies

    def launch(self, work):
        self.queue.append(work)

    def mark(self):
        ended = []
        self.queue.append(lambda: ended.append(True))

        def query():
            for work in self.queue[: self.pace]:
                work()
            del self.queue[: self.pace]
            return bool(ended)

        return query

    def warm_up(self, work):
        assert not self.queue
        for _ in range(3):
            work()

    def capture(self, work):
        with Recorded() as recorded:
            work()
        self.graphs.append(recorded)
        return recorded.replay
