"""The tests' fast products in half precision give what torch's slow ones give."""

import pytest
import torch

from warm import half_products


def results(dtype):
    """Products and a convolution with its gradients, of the same numbers in any precision."""
    numbers = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=numbers).to(dtype).requires_grad_()

    left, right, bias, stack = draw(39, 12), draw(12, 51), draw(51), draw(8, 19, 6)
    images, weight, shift = draw(2, 3, 32, 32), draw(12, 3, 16, 16), draw(12)
    made = [
        left @ right,
        torch.addmm(bias, left, right, beta=0.5, alpha=2),
        stack @ stack.transpose(1, 2),
        torch.baddbmm(stack[:, :, :1], stack, stack.transpose(1, 2)),
        torch.conv2d(images, weight, shift, stride=16),
    ]
    sum(one.float().pow(2).sum() for one in made).backward()
    inputs = left, right, bias, stack, images, weight, shift
    return [*made, *(one.grad for one in inputs)]


def differ(ours, theirs):
    """The largest difference, as a share of the largest number."""
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_are_those_of_torch(dtype):
    half_products.turn_on()
    fast = results(dtype)
    kernels = half_products.KERNELS[:]
    for library in kernels:
        library._destroy()
    try:
        slow = results(dtype)
    finally:
        half_products.KERNELS.clear()
        half_products.turn_on()
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours.dtype == theirs.dtype == dtype
        assert differ(ours.float(), theirs.float()) < 0.01
