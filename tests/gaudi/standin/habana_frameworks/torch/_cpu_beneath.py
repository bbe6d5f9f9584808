"""Tensors of device `hpu` lie in the host's memory: a mode that reads `cpu` for `hpu`."""

from functools import wraps
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily

CPU = torch.device("cpu")


class CpuBeneath(TorchFunctionMode):
    """While it is on, every call of torch that names the device `hpu` gets the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:  # a name is only a name
            return func(*args, **kwargs)
        return func(*map(_beneath, args), **{name: _beneath(kwargs[name]) for name in kwargs})


def _beneath(value: Any) -> Any:
    if isinstance(value, torch.device):
        return CPU if value.type == "hpu" else value
    return CPU if isinstance(value, str) and value.partition(":")[0] == "hpu" else value


class CpuAutocast(torch.autocast):
    """`torch.autocast("hpu")` casts what the CPU runs, since that is what runs."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "hpu" else device_type, *args, **kwargs)


def of_cpu(told: Any) -> Any:
    """A function that tells how a type of device casts: of `hpu`, what it tells of the CPU."""
    return lambda *kinds: told(*("cpu" if kind == "hpu" else kind for kind in kinds))


_init = DistributedDataParallel.__init__


def init_without_ids(self: Any, *args: Any, **kwargs: Any) -> None:
    """`DistributedDataParallel.__init__`, which takes no device numbers for what lies on CPUs."""
    _init(self, *args, **{**kwargs, "device_ids": None, "output_device": None})


_compile = torch.compile


def compile_without_mode(model: Any = None, **options: Any) -> Any:
    """`torch.compile`, whose modules run without `CpuBeneath`: it would be traced with every
    operation, and a real device has no such mode. No module here names a device."""
    compiled = _compile(model, **options)
    if isinstance(compiled, torch.nn.Module):
        forward = compiled.forward

        @wraps(forward)
        def run(*args: Any, **kwargs: Any) -> Any:
            with _pop_mode_temporarily():
                return forward(*args, **kwargs)

        compiled.forward = run
    return compiled
