"""Products of matrices in bf16 and fp16 as fast as in fp32, on CPUs without instructions for them.

There torch computes them forty times slower than in fp32. Here they are computed in fp32 and then
rounded, as instructions for bf16 do: these sum in fp32 too. Importing this prepares it, and the
first use of half precision (autocast, or a model cast to it) turns it on.
"""

from functools import wraps
from typing import Any

import torch
from torch.nn import Module

ATEN = torch.ops.aten
SLOW = {
    dtype
    for dtype, supported in (
        (torch.bfloat16, torch.ops.mkldnn._is_mkldnn_bf16_supported()),
        (torch.float16, torch.ops.mkldnn._is_mkldnn_fp16_supported()),
    )
    if not supported
}
KERNELS: list[torch.library.Library] = []
"""They are in force for as long as this object exists."""


def float32(*values: Any) -> Any:
    return [value.float() if isinstance(value, torch.Tensor) else value for value in values]


def product(name: str) -> Any:
    """A kernel of mm, bmm, addmm or baddbmm, whose last two tensors are multiplied."""
    usual, into = getattr(ATEN, name).default, getattr(ATEN, name).out

    def kernel(*tensors: Any, **scales: Any) -> Any:
        left, right = tensors[-2:]
        if left.dtype in SLOW:
            return usual(*float32(*tensors), **scales).to(left.dtype)
        made = left.new_empty((*left.shape[:-1], right.shape[-1]))
        return into(*tensors, **scales, out=made)

    return kernel


def convolve(images: Any, weight: Any, size: Any, bias: Any, stride: Any, padding: Any) -> Any:
    """torch's own kernel for the types that its fast library lacks."""
    if images.dtype in SLOW:
        return torch.conv2d(*float32(images, weight, bias), stride, padding).to(images.dtype)
    made = images.new_empty(0)
    asked = images, weight, size, bias, stride, padding
    return ATEN._slow_conv2d_forward.output(*asked, output=made)


def convolve_back(
    grad: Any, images: Any, weight: Any, size: Any, stride: Any, padding: Any, wanted: Any
) -> Any:
    """Its gradients of the images, the weight and the bias, those that are wanted."""
    if grad.dtype in SLOW:
        shape = [weight.shape[0]], stride, padding, [1, 1], False, [0, 0], 1
        made = ATEN.convolution_backward(*float32(grad, images, weight), *shape, wanted)
        return tuple(one if one is None else one.to(grad.dtype) for one in made)
    made = {f"grad_{of}": grad.new_empty(0) for of in ("input", "weight", "bias")}
    asked = grad, images, weight, size, stride, padding
    return ATEN._slow_conv2d_backward.grad_input(*asked, **made)


def turn_on() -> None:
    """Replace torch's kernels of this process."""
    if KERNELS or not SLOW:
        return
    library = torch.library.Library("aten", "IMPL")
    KERNELS.append(library)
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        library.impl(name, product(name), "CPU")
    library.impl("_slow_conv2d_forward", convolve, "CPU")
    library.impl("_slow_conv2d_backward.output_mask", convolve_back, "CPU")


def prepare() -> None:
    """Turn it on with the first half precision."""
    autocast, to = torch.autocast.__init__, Module.to

    @wraps(autocast)
    def make_autocast(self: Any, *args: Any, **kwargs: Any) -> None:
        autocast(self, *args, **kwargs)
        if self._enabled and self.fast_dtype in SLOW:
            turn_on()

    @wraps(to)
    def cast(self: Module, *args: Any, **kwargs: Any) -> Module:
        if not SLOW.isdisjoint([one for one in (*args, *kwargs.values()) if one in SLOW]):
            turn_on()
        return to(self, *args, **kwargs)

    torch.autocast.__init__, Module.to = make_autocast, cast


prepare()
