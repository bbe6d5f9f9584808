"""Importing this gives torch the device `hpu`, and its processes their ranks, as the real one."""

import habana_frameworks.torch.core
import habana_frameworks.torch.distributed.hccl  # noqa: F401 - it tells the ranks
from habana_frameworks.torch import hpu
from habana_frameworks.torch._cpu_beneath import (
    CpuAutocast,
    CpuBeneath,
    compile_without_mode,
    init_without_ids,
    of_cpu,
)

import torch

if hpu.is_available():
    torch._register_device_module("hpu", hpu)
    torch.autocast = torch.amp.autocast = CpuAutocast
    torch.is_autocast_enabled = of_cpu(torch.is_autocast_enabled)
    torch.get_autocast_dtype = of_cpu(torch.get_autocast_dtype)
    torch.compile = compile_without_mode
    torch.nn.parallel.DistributedDataParallel.__init__ = init_without_ids
    CpuBeneath().__enter__()  # for good: the device does not go away again
