"""Graphs: what ran between the two captures runs again on the same tensors, at every replay."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map


class Recorder(TorchDispatchMode):
    """Notes every operation, with the very tensors that it took and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, made))
        return made


class HPUGraph:
    """Like the real one it knows no tensor but those that it saw: one put in the place of another
    later (a new `grad`) is not in it."""

    def capture_begin(self) -> None:
        self._recorder = Recorder()
        self._recorder.__enter__()

    def capture_end(self) -> None:
        self._recorder.__exit__(None, None, None)

    def replay(self) -> None:
        now: dict[int, Any] = {}

        def current(value: Any) -> Any:
            return now.get(id(value), value)

        for func, args, kwargs, made in self._recorder.operations:
            again = func(*tree_map(current, args), **tree_map(current, kwargs))
            for before, after in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(before, torch.Tensor) and before is not after:
                    now[id(before)] = after


class Stream:
    """Work is done where it is asked for."""


@contextmanager
def stream(_stream: Stream) -> Iterator[None]:
    yield
