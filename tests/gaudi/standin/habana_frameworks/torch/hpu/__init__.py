"""The device's own functions, for as many devices of a kind as the environment says.

FEEDRATE_STANDIN_HPUS (default 8) are there, of the model FEEDRATE_STANDIN_MODEL (GAUDI2).
"""

import os
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

from habana_frameworks.torch.hpu import random as random
from habana_frameworks.torch.hpu.graphs import HPUGraph as HPUGraph
from habana_frameworks.torch.hpu.graphs import Stream as Stream
from habana_frameworks.torch.hpu.graphs import stream as stream
from habana_frameworks.torch.hpu.random import get_rng_state as get_rng_state
from habana_frameworks.torch.hpu.random import manual_seed_all as manual_seed_all
from habana_frameworks.torch.hpu.random import set_rng_state as set_rng_state

import torch
from torch.utils._pytree import tree_leaves, tree_map

LIMIT_BYTES = 96 * 2**30

manual_seed = manual_seed_all


def is_available() -> bool:
    return device_count() > 0


def device_count() -> int:
    return int(os.environ.get("FEEDRATE_STANDIN_HPUS", "8"))


def get_device_name(device: Any = None) -> str:
    return os.environ.get("FEEDRATE_STANDIN_MODEL", "GAUDI2")


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    pass


def is_initialized() -> bool:
    return True


def synchronize(device: Any = None) -> None:
    pass


def memory_stats(device: Any = None) -> dict[str, int]:
    """The host's memory of this process, under the keys of the real allocator."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    kib = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)
           if name in ("VmRSS", "VmHWM")}  # fmt: skip
    return {"Limit": LIMIT_BYTES, "InUse": kib["VmRSS"] * 1024, "MaxInUse": kib["VmHWM"] * 1024}


def memory_allocated(device: Any = None) -> int:
    return memory_stats()["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    return memory_stats()["MaxInUse"]


def reset_peak_memory_stats(device: Any = None) -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def enable_dynamic_shape() -> None:
    pass


def disable_dynamic_shape() -> None:
    pass


def wrap_in_hpu_graph(
    module: Any, disable_tensor_cache: bool = False, max_graphs: int | None = None
) -> Any:
    """Replaces the module's forward pass for good, as the real one: a replay has no gradients, and
    every replay for the same shapes writes its answer into the same tensors."""
    forward = module.forward
    cache: dict[Any, Any] = {}

    @wraps(forward)
    def replay(*args: Any, **kwargs: Any) -> Any:
        key = str(tree_map(lambda one: getattr(one, "shape", one), (args, kwargs)))
        with torch.no_grad():
            now = forward(*args, **kwargs)
        answer = cache.setdefault(key, now)
        for kept, new in zip(tree_leaves(answer), tree_leaves(now), strict=True):
            if isinstance(kept, torch.Tensor):
                kept.copy_(new)
        return answer

    def clear_inputs() -> None:
        """Here the graphs hold no inputs."""

    module.forward, module.clear_cache, module.clear_inputs = replay, cache.clear, clear_inputs
    return module


class ModuleCacher:
    """Counts, as the real one, the forward passes of training by the shapes of their tensors: each
    of the first shapes has a graph, and the others run without. All are computed without graphs."""

    def __init__(self, max_graphs: int = 10) -> None:
        self.max_graphs = int(os.environ.get("FEEDRATE_STANDIN_GRAPHS", max_graphs))
        self.cached_hits_dict: dict[Any, int] = {}
        self.uncached_train_hits = 0

    def __call__(self, model: Any, inplace: bool = True) -> Any:
        self.model, self.without_graph = model, model.forward
        model.forward = self.forward
        return model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        shapes = tuple(getattr(one, "shape", one) for one in (*args, *kwargs.values()))
        hits, lazy = self.cached_hits_dict, os.environ.get("PT_HPU_LAZY_MODE", "1") == "1"
        able = self.model.training and torch.is_grad_enabled() and lazy
        if able and (shapes in hits or len(hits) < self.max_graphs):
            hits[shapes] = hits.get(shapes, 0) + 1
        elif self.model.training:
            self.uncached_train_hits += 1
        return self.without_graph(*args, **kwargs)


class Event:
    """torch.compile asks for the name."""
