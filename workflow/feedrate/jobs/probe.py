"""The rate of large matrix products and the energy counter, for `feedrate selftest` to judge."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from feedrate.core.files import write_json
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.worker import bind_process, classify

ANSWER = "probe.rank{}.json"  # the file of a rank's answer
PRODUCT_S = 1.5  # time of the products in each precision, s
SIDES, LONG_S = (512, 1024, 2048, 4096, 8192, 16384), 0.005
"""Sides of matrices to try: the first whose product takes this long, s, reaches a device's rate."""
PRODUCTS_AT_A_TIME = 8  # products that are submitted before the device is waited for
Energy = list[tuple[float, float | None]]  # readings of the counter: time, s, and energy, J


class Product(msgspec.Struct):
    """Products of square matrices; neither `tflops` nor `failure`: not for this kind of device."""

    precision: str
    side: int = 0
    tflops: float | None = None
    failure: str = ""


class Probe(msgspec.Struct):
    """The measurements of one rank."""

    rank: int
    products: list[Product]
    energy: Energy


def probe_device(run: Path, precisions: list[str]) -> None:
    """Measure this rank's device, and write the answer into the folder of the run.

    --run          folder with spec.json
    --precisions   fp32, tf32, bf16, fp16, fp8: the precisions of the matrix products
    """
    spec, _ = bind_process(run)
    # Importing torch starts its threads, so the process must be bound before.
    from feedrate.devices.base import adapter
    from feedrate.loading.workers import end_process_on_hang

    end_process_on_hang(print)
    rank, _, local_rank, local_ranks = rank_from_environment()
    answer = probe(adapter(spec.kind, local_rank, local_ranks), rank, precisions)
    write_json(run / ANSWER.format(rank), msgspec.to_builtins(answer))


def probe(device: Any, rank: int, precisions: list[str], seconds: float = PRODUCT_S) -> Probe:
    """Measure a device; products in each precision take `seconds`."""
    answer, joules = Probe(rank, [], []), device.energy_counter()
    for precision in precisions:
        product = Product(precision)
        try:
            if precision != "fp8" or device.fp8_by_torchao:
                device.hold_fp32(precision)
                product = multiply(device, precision, seconds, answer.energy, joules)
        except Exception as error:  # one precision that fails must not hide the others
            product.failure = classify(error).message
        answer.products.append(product)
    return answer


def multiply(
    device: Any, precision: str, seconds: float, energy: Energy, joules: Callable[[], float | None]
) -> Product:
    """The rate of large matrix products; adds readings to `energy`. The device is synchronised at
    both ends: a synchronisation that does not wait shows as a rate above the device's peak."""

    def run(count: int) -> float:
        """The time at the end of `count` products."""
        for _ in range(count):
            result = product()  # stays until the next: its memory may be in use
            device.end_of_step()
        device.synchronize()
        del result
        return perf_counter()

    for side in SIDES:
        product = make_product(device, precision, side)
        start_s = run(1)
        if run(1) - start_s >= LONG_S:
            break
    start_s, end_s, count = perf_counter(), 0.0, 0
    energy.append((start_s, joules()))
    while end_s < start_s + seconds:
        end_s = run(PRODUCTS_AT_A_TIME)
        count += PRODUCTS_AT_A_TIME
        energy.append((end_s, joules()))
    operations = count * 2 * side**3
    return Product(precision, side, operations / (end_s - start_s) / 1e12)


def make_product(device: Any, precision: str, side: int) -> Callable[[], Any]:
    """A function that multiplies two matrices of this side in this precision."""
    import torch

    # Random numbers: products of constants take less power and so run faster.
    a, b = (torch.randn(side, side, device=device.device) for _ in range(2))
    if precision == "fp8":
        scale = torch.ones((), device=device.device)
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        return lambda: torch._scaled_mm(
            a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
        )
    names = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    dtype = getattr(torch, names[precision])
    a, b = a.to(dtype), b.to(dtype)
    return lambda: torch.mm(a, b)
