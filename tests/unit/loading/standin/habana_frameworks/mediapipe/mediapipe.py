"""The pipeline: a graph of operators, run ahead in a thread."""

import queue
import threading
from types import SimpleNamespace

import torch

MADE = []
"""Pipelines made, in order; tests look at them."""
_END = object()


class MediaPipe:
    """Derive, make operators in the constructor, connect them in `definegraph`."""

    def __init__(self, device=None, prefetch_depth=2, batch_size=1, num_threads=1, pipe_name=None):
        assert device == "legacy"
        self.prefetch_depth, self.batch_size = prefetch_depth, batch_size
        self.num_threads, self.pipe_name = num_threads, pipe_name
        self._stop = threading.Event()
        MADE.append(self)

    def build(self):
        """Make the graph and the reader."""
        self._outputs = self.definegraph()
        node = self._outputs[0]
        while node.inputs:
            node = node.inputs[0]
        self.reader_operator = node.operator
        parameters = SimpleNamespace(batch_size=self.batch_size, num_threads=self.num_threads)
        self.reader = self.reader_operator.make_reader(parameters)

    def get_batch_count(self):
        """Batches of an epoch."""
        return len(self.reader)

    def iter_init(self):
        """Start an epoch."""
        self._stop.set()
        self._stop = threading.Event()
        self._ready = queue.Queue(self.prefetch_depth)
        arguments = (self._ready, self._stop)
        threading.Thread(target=self._prefetch, args=arguments, daemon=True).start()

    def run(self):
        """The next batch, in tensors that the caller owns."""
        made = self._ready.get(timeout=60)
        if made is _END:
            raise StopIteration
        if isinstance(made, Exception):
            raise RuntimeError(f"media pipe failed: {made}")
        return made

    def close(self):
        """End the thread."""
        self._stop.set()

    def _prefetch(self, ready, stop):
        def put(made):
            while not stop.is_set():
                try:
                    ready.put(made, timeout=0.05)
                except queue.Full:
                    continue
                return

        try:
            for read in iter(self.reader):
                self.reader_operator.check(read)
                put([self._tensor(self._value(node, read)) for node in self._outputs])
                if stop.is_set():
                    return
        except Exception as error:
            put(error)
        put(_END)

    def _value(self, node, read):
        if node.operator is self.reader_operator:
            return read[node.output]
        return node.operator.run(*(self._value(source, read) for source in node.inputs))

    @staticmethod
    def _tensor(values):
        # As on the device: no unsigned integers, and memory of its own.
        values = values.astype("int32") if values.dtype == "uint32" else values
        return torch.from_numpy(values.copy())
