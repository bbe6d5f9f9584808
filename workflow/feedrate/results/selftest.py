"""The judgements of `feedrate selftest`: pure functions from measured figures to lines of its page.

Each rests on what any device must do, not on the past figures of one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from feedrate.config.study import Thresholds
from feedrate.jobs.probe import Probe, Product
from feedrate.results.conformity import DISTURBED
from feedrate.results.record import Record
from feedrate.results.statistics import rate_text
from feedrate.results.verdicts import cell_verdict

Outcome = Literal["passed", "failed", "unknown", "not claimed"]


class Line(msgspec.Struct, frozen=True):
    """One line of the page."""

    outcome: Outcome
    subject: str
    """`one card: fp8`, `rank 3: product in bf16`."""
    text: str
    """The finding, in one sentence without a full stop."""


LEAST_OF_PEAK = 0.2
"""Share of its peak that a large matrix product reaches on any device that works; libraries reach
0.6 to 0.95 (config/devices.yaml, `achievable_tflops`)."""
MOST_OF_PEAK = 1.2
"""A product above this share of its peak fails: a rate without a wait is far higher. Between the
peak and this share it proves nothing, since cards may exceed their data sheet's boost clock: others
measured 240 TFLOP/s in bf16 on an RTX 5090 (115%), 86 in TF32 on an RTX 4090 (104%)."""
POWER_SHARE = 0.05
"""NVML's figures are accurate within 5% (nvmlDeviceGetPowerUsage)."""
MOST_LEVELS_OFF = 10.0
"""Levels of 255 by which pixels may differ from the reference's on average. Decoders that shrink or
crop first differ by up to 4.5, another picture by 46."""


def judge_product(product: Product, peak_tflops: float | None, card: str) -> Line:
    """A large matrix product reaches 20% to 100% of the registered peak. Above it, the clock is
    above the data sheet's, the synchronisation does not wait, or the entry is another device's."""
    subject = f"{card}: matrix product in {product.precision}"
    if product.tflops is None:
        text = product.failure or "this kind of device computes it only in its Trainer"
        return Line("failed" if product.failure else "unknown", subject, text)
    text = f"{product.tflops:.4g} TFLOP/s, side {product.side}"
    if peak_tflops is None:
        return Line("unknown", subject, f"{text}; no peak is registered")
    share = product.tflops / peak_tflops
    text += f", {share:.{int(share > 1)}%} of the registered {peak_tflops:g}"
    why = "the device's synchronisation does not wait, or the entry describes another device"
    if share > MOST_OF_PEAK:
        return Line("failed", subject, f"{text}: {why}")
    if share > 1:
        return Line("unknown", subject, f"{text}: its clock exceeds the data sheet's, {why}")
    return Line(_if(share >= LEAST_OF_PEAK), subject, text)


def judge_energy(answers: Sequence[Probe], power_w: float | None) -> Line:
    """Every energy counter increases (on CPUs the first rank's, which counts for all), and the mean
    power stays below the rating."""
    ranks = [answer.energy for answer in answers]
    if any(joules is None for readings in ranks for _, joules in readings):
        return Line("unknown", "energy", "it cannot be read here")
    if not any(joules for readings in ranks[1:] for _, joules in readings):
        ranks = ranks[:1]
    power = []
    for card, readings in enumerate(ranks):
        times, joules = zip(*((s, j or 0.0) for s, j in readings), strict=True)
        if any(later < earlier for earlier, later in pairwise(joules)):
            return Line("failed", "energy", f"the counter of card {card} decreased")
        power.append((joules[-1] - joules[0]) / (times[-1] - times[0]))
    if (least := min(power)) <= 0:
        text = f"the counter of card {power.index(least)} did not increase"
        return Line("failed", "energy", text)
    text = f"the counters increase; {max(power):.4g} W on average under matrix products"
    if power_w is None:
        return Line("unknown", "energy", f"{text}; no rated power is registered")
    passed = max(power) <= (1 + POWER_SHARE) * power_w
    return Line(_if(passed), "energy", f"{text}, rated for {power_w:g} W")


def judge_run(record: Record, subject: str) -> Line:
    """A claimed capability's job ends well, as asked for, whatever disturbs its speed."""
    wrong = [c for c in record.checks if not c.passed and c.name not in DISTURBED]
    if record.measurement is None or record.status not in ("ok", "invalid") or wrong:
        cause = wrong[0].detail if wrong else record.cause
        return Line("failed", subject, f"{record.status}: {cause}")
    rate = rate_text(record.measurement.samples_per_s)
    return Line("passed", subject, f"{rate} samples/s, {len(record.checks)} checks passed")


def judge_pixels(record: Record, subject: str) -> Line:
    """The pixels of a decode path match those of the reference on the host."""
    off, psnr_db = record.pixels.mean_abs_diff, record.pixels.psnr_db
    if off is None:
        return Line("failed", f"{subject}: pixels", "they were not compared with the reference's")
    ratio = "" if psnr_db is None else f", {psnr_db:.1f} dB"
    text = f"on average {off:.2f} of 255 levels from the reference's{ratio}"
    return Line(_if(off <= MOST_LEVELS_OFF), f"{subject}: pixels", text)


def judge_verdict(record: Record, expected: str, memory_gib: float | None, subject: str) -> Line:
    """A planted limit is found: a slow loader is input-bound, a slow model is compute-bound."""
    if record.measurement is None or record.spec is None:
        return Line("failed", f"{subject}: verdict", "there is no measurement")
    loader = record.spec.settings.loader
    cell = msgspec.structs.asdict(record.measurement) | msgspec.structs.asdict(record.ceilings)
    cell |= {
        **{"status": "ok", "task": "training", "device_kind": record.spec.kind},
        **{"world_size": record.spec.count, "loader_workers": loader.workers},
        **{"decodes_on_device": loader.decode == "device", "oversubscribed": False},
        "device_busy_share": None,  # a slow model may have small kernels
    }
    found = cell_verdict(cell, Thresholds(), memory_gib)
    wrong = "" if found.name == expected else f", not {expected}"
    return Line(_if(not wrong), f"{subject}: verdict", f"{found.name}{wrong}: {found.why}")


def _if(passed: bool) -> Outcome:
    return "passed" if passed else "failed"
