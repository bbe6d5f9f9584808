"""A rank of a training job with faults in it: `python -m benchmarks.lab.plant --run DIR …`.

The laboratory's interpreter starts this module where the job asks for `feedrate worker`. It wraps
functions of the loading path, the copy, the backward pass and the exchange, then runs the worker.
No measured module knows of it. The faults come in the variable `FEEDRATE_LAB_FAULTS`, which the
spec sets (`software.environment`), so the record of every such run names them.
"""

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

VARIABLE = "FEEDRATE_LAB_FAULTS"


class Planted(msgspec.Struct, kw_only=True, frozen=True):
    """One fault of a run. What does not apply to its kind is 0."""

    kind: str
    how: str = "sleep"
    seconds: float = 0.0
    """Delay in each optimizer step, s."""
    rank: int | None = None
    """The only slow rank; None: all."""
    batch: int = 1
    """Samples of a rank's step."""
    rows: int = 0
    """Rows of an epoch."""
    cap_gib: float = 0.0
    """Memory that the device reports."""


def delay(how: str, seconds: float) -> None:
    """Sleep, or compute for `seconds` of CPU time (longer where the core is shared)."""
    if how == "sleep":
        time.sleep(seconds)
        return
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def before(
    place: Any, name: str, act: Callable[[], None], times: Callable[..., int] | None = None
) -> None:
    """Make the function `name` of a module or class act first, or as often as `times` of its
    arguments says. Raises AttributeError if it is not there: a fault that is planted nowhere would
    be counted as one that nobody found."""
    original = getattr(place, name)

    @functools.wraps(original)
    def slowed(*args: Any, **kwargs: Any) -> Any:
        for _ in range(times(*args, **kwargs) if times else 1):
            act()
        return original(*args, **kwargs)

    setattr(place, name, slowed)


def read(fault: Planted) -> None:
    """Each sample is late: the decoder waits first, for a row or for each row of a batch."""
    cache = importlib.import_module("feedrate.loading.decoders.cache")
    act = functools.partial(delay, fault.how, fault.seconds / fault.batch)
    before(cache, "read", act)
    before(cache.Store, "gather", act, times=lambda _, rows, *__: len(rows))


def collate(fault: Planted) -> None:
    """Each batch is late. Modules take `collate` when they are imported, which comes later."""
    dataset = importlib.import_module("feedrate.loading.dataset")
    before(dataset, "collate", functools.partial(delay, fault.how, fault.seconds))


def copy(fault: Planted) -> None:
    """Each copy of a batch to the device is late: accelerate's in training, and the job's own in
    its rounds, whose modules take the function when they are imported."""
    act = functools.partial(delay, fault.how, fault.seconds)
    for module in ("accelerate.data_loader", "accelerate.utils"):
        before(importlib.import_module(module), "send_to_device", act)


def backward(fault: Planted) -> None:
    """Each backward pass takes longer."""
    act = functools.partial(delay, fault.how, fault.seconds)
    before(importlib.import_module("accelerate").Accelerator, "backward", act)


def epoch_boundary(fault: Planted) -> None:
    """Epochs have few rows, so the loader's workers are started again and again."""
    from feedrate.loading import dataset  # before the modules that take it from there

    class Short(dataset.EpochOrder):
        def __init__(self, rows: int, *args: Any, **kwargs: Any) -> None:
            super().__init__(min(rows, fault.rows), *args, **kwargs)

    dataset.EpochOrder = Short  # type: ignore[misc]  # a planted fault


def memory_cap(fault: Planted) -> None:
    """The device reports `cap_gib`, and refuses more: as its allocator would, in a step."""
    adapter = importlib.import_module("feedrate.devices.kinds.cpu").DeviceAdapter
    accelerator = importlib.import_module("accelerate").Accelerator
    adapter.capacity_gib = lambda _: fault.cap_gib
    original = accelerator.backward

    def limited(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if (adapter.memory(None).peak_gib or 0.0) > fault.cap_gib:
            raise MemoryError(f"out of memory: the planted cap is {fault.cap_gib:.3f} GiB")

    accelerator.backward = limited


def all_reduce(fault: Planted) -> None:
    """The network is slower: a delay in proportion to the numbers that are exchanged, `seconds` for
    all gradients. DDP calls it from C++, so it gets torch's own hook, which calls the function."""
    torch: Any = importlib.import_module("torch")
    from torch import Tensor
    from torch.distributed import GradBucket  # type: ignore[attr-defined]  # it is of C++
    from torch.futures import Future

    hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
    wrapper, exchange = torch.nn.parallel.DistributedDataParallel, torch.distributed.all_reduce
    wrap, register = wrapper.__init__, wrapper.register_comm_hook
    gradients = [0]
    # The job may register a hook of its own: it then takes the place of torch's.
    running: list[Any] = [None, hooks.allreduce_hook]

    @functools.wraps(exchange)
    def slow(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if gradients[0]:
            delay(fault.how, fault.seconds * tensor.numel() / gradients[0])
        return exchange(tensor, *args, **kwargs)

    @functools.wraps(wrap)
    def hooked(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        wrap(self, module, *args, **kwargs)
        gradients[0] = sum(p.numel() for p in module.parameters() if p.requires_grad)
        register(self, None, planted)

    def planted(_: Any, bucket: GradBucket) -> Future[Tensor]:
        reduced: Future[Tensor] = running[1](running[0], bucket)
        return reduced

    def replace(_: Any, state: Any, hook: Any) -> None:
        running[:] = state, hook

    torch.distributed.all_reduce = slow
    wrapper.__init__ = hooked
    wrapper.register_comm_hook = replace


PLANTS: dict[str, Callable[[Planted], None]] = {
    "read": read,
    "hidden_read": read,
    "worker_read": read,
    "rank_input": read,
    "decode": read,
    "worker_decode": read,
    "collate": collate,
    "copy": copy,
    "rank_backward": backward,
    "all_reduce": all_reduce,
    "epoch_boundary": epoch_boundary,
    "memory_cap": memory_cap,
    "memory_room": memory_cap,
}
"""What plants each kind; the other kinds are processes outside of the job (neighbour.py)."""


def plant(rank: int, text: str) -> None:
    """Plant the faults of `text` that concern this rank."""
    for fault in msgspec.json.decode(text, type=list[Planted]):
        if fault.rank in (None, rank):
            PLANTS[fault.kind](fault)


def main(words: list[str]) -> int:
    """Run the worker with these options, with the faults in place once it is bound to its cores."""
    from feedrate.cli import jobs
    from feedrate.config.spec import RunSpec
    from feedrate.devices.launch import rank_from_environment
    from feedrate.devices.placement import Placement
    from feedrate.jobs import worker

    bind = worker.bind_process

    def bind_and_plant(run: Path) -> tuple[RunSpec, Placement]:
        bound = bind(run)
        plant(rank_from_environment()[0], os.environ.get(VARIABLE, "[]"))
        return bound

    worker.bind_process = bind_and_plant
    return int(jobs.run("worker", words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
