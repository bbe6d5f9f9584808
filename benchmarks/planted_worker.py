"""A rank of a training job with a planted fault: it stands in for `python -m feedrate worker`.

`faults.py` starts it through the spec's interpreter. No measured module knows of it. The fault
comes in the variable `FEEDRATE_PLANTED`, which the spec sets (`software.environment`), so the
record of every such run names it.
"""

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "FEEDRATE_PLANTED"


def busy(seconds: float) -> None:
    """Compute for `seconds` of CPU time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def act_before(place: Any, name: str, act: Callable[[], None], times: Callable[..., int]) -> None:
    """Make the function `name` of a module or class act first, as often as `times` of its arguments
    says. Raises AttributeError if it is not there: a fault that is planted nowhere would be counted
    as one that was not named."""
    original = getattr(place, name)

    @functools.wraps(original)
    def slowed(*args: Any, **kwargs: Any) -> Any:
        for _ in range(times(*args, **kwargs)):
            act()
        return original(*args, **kwargs)

    setattr(place, name, slowed)


def slow_read(seconds: float, batch: int) -> None:
    """The storage answers late: each of a step's `batch` samples waits before it is read."""
    cache = importlib.import_module("feedrate.loading.decoders.cache")
    act = functools.partial(time.sleep, seconds / batch)
    act_before(cache, "read", act, times=lambda *_, **__: 1)
    act_before(cache.Store, "gather", act, times=lambda _, rows, *__: len(rows))


def slow_backward(seconds: float) -> None:
    """Each backward pass takes longer."""
    accelerator = importlib.import_module("accelerate").Accelerator
    act = functools.partial(busy, seconds)
    act_before(accelerator, "backward", act, times=lambda *_, **__: 1)


def slow_exchange(seconds: float) -> None:
    """Each exchange of all gradients takes longer. DDP exchanges in C++, so it gets a hook."""
    torch: Any = importlib.import_module("torch")
    hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
    wrapper, exchange = torch.nn.parallel.DistributedDataParallel, torch.distributed.all_reduce
    wrap, register = wrapper.__init__, wrapper.register_comm_hook
    gradients = [0]
    # The job may register a hook of its own, which then replaces torch's.
    running: list[Any] = [None, hooks.allreduce_hook]

    @functools.wraps(exchange)
    def slow(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if gradients[0]:
            time.sleep(seconds * tensor.numel() / gradients[0])
        return exchange(tensor, *args, **kwargs)

    @functools.wraps(wrap)
    def hooked(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        wrap(self, module, *args, **kwargs)
        gradients[0] = sum(p.numel() for p in module.parameters() if p.requires_grad)
        # torch checks the hook's annotations, so it has none of other types.
        register(self, None, lambda _, bucket: running[1](running[0], bucket))

    def replace(_: Any, state: Any, hook: Any) -> None:
        running[:] = state, hook

    torch.distributed.all_reduce = slow
    wrapper.__init__ = hooked
    wrapper.register_comm_hook = replace


def limited_memory(limit_gib: float) -> None:
    """The device reports `limit_gib`, and refuses more in a step, as its allocator would."""
    adapter = importlib.import_module("feedrate.devices.kinds.cpu").DeviceAdapter
    accelerator = importlib.import_module("accelerate").Accelerator
    adapter.capacity_gib = lambda _: limit_gib
    original = accelerator.backward

    def limited(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if (adapter.memory(None).peak_gib or 0.0) > limit_gib:
            raise MemoryError(f"out of memory: the planted limit is {limit_gib:.3f} GiB")

    accelerator.backward = limited


PLANTS: dict[str, Callable[..., None]] = {
    "slow_read": slow_read,
    "slow_backward": slow_backward,
    "slow_exchange": slow_exchange,
    "limited_memory": limited_memory,
}


def plant(rank: int, text: str) -> None:
    """Plant the fault of a JSON text `{kind, only_rank, …}` if it concerns this rank."""
    fault = json.loads(text)
    if fault and fault.pop("only_rank", rank) == rank:
        PLANTS[fault.pop("kind")](**fault)


def main(words: list[str]) -> int:
    """Run the worker with these options, with the fault in place once it is bound to its cores."""
    from feedrate.cli import jobs
    from feedrate.config.spec import RunSpec
    from feedrate.devices.launch import rank_from_environment
    from feedrate.devices.placement import Placement
    from feedrate.jobs import worker

    bind = worker.bind_process

    def bind_and_plant(run: Path) -> tuple[RunSpec, Placement]:
        bound = bind(run)
        plant(rank_from_environment()[0], os.environ[VARIABLE])
        return bound

    worker.bind_process = bind_and_plant
    return int(jobs.run("worker", words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
