"""Gates on the numbers themselves: identities that hold in every honest measurement."""

import math

from feedrate.results.evidence import Evidence, Finding, listed

STEP_SUM_TOLERANCE = 0.05
"""Share by which the sum of the step times may differ from the window's wall time."""
STEP_SUM_SLACK_S = 0.1
"""And seconds: one synchronisation at each end of the window lies outside the steps."""
POWER_TOLERANCE = 1.2
"""Times its rated power that a device may be found to take: counters are off by some percent."""


def window(e: Evidence) -> Finding:
    """The window is the one that the protocol asks for."""
    protocol, seen = e.spec.protocol, e.observed
    # A resumed job warms up again before its window opens.
    first, last = seen.job_first_step + protocol.warmup_steps, protocol.steps
    if (seen.first_step, seen.last_step, e.measurement.steps) != (first, last, last - first + 1):
        return False, (
            f"The window is steps {seen.first_step} to {seen.last_step} "
            f"({e.measurement.steps} counted), asked for {first} to {last}."
        )
    return True, f"The window is steps {first} to {last}, after {protocol.warmup_steps} warm-up."


def samples(e: Evidence) -> Finding:
    """Samples are steps x batch x accumulation, on each rank."""
    train, m = e.spec.settings.train, e.measurement
    a_rank = m.steps * train.batch_size * train.gradient_accumulation
    expected = a_rank * e.spec.count
    sum_up = (
        f"{m.steps} steps x {train.batch_size} x {train.gradient_accumulation} "
        f"x {e.spec.count} ranks = {expected} samples"
    )
    if e.spec.settings.loader.last_batch == "keep":
        # The last batch of an epoch may be smaller, or padded to the others' size.
        return 0 < m.samples <= expected, f"At most {sum_up}; {m.samples} were counted."
    if m.samples != expected:
        return False, f"{sum_up}, but {m.samples} were counted."
    if any(samples != a_rank for samples in e.observed.rank_samples):
        return (
            False,
            f"{a_rank} samples a rank expected, counted {listed(e.observed.rank_samples)}.",
        )
    return True, f"{sum_up}, as counted."


def step_sum(e: Evidence) -> Finding:
    """The steps fill the window."""
    total, wall = e.observed.step_sum_s, e.measurement.wall_s
    if total is None:
        return False, "No step times to hold the window against."
    off = abs(total - wall)
    passed = off <= STEP_SUM_TOLERANCE * wall + STEP_SUM_SLACK_S
    return passed, f"The steps sum up to {total:.4g} s, the window took {wall:.4g} s."


def loss(e: Evidence) -> Finding:
    """Losses are finite, and the model still learns."""
    losses = e.observed.losses
    if not losses:
        return False, "No loss was reported."
    bad = [loss for loss in losses if not math.isfinite(loss)]
    if bad:
        return False, f"{len(bad)} of {len(losses)} losses are not finite."
    if losses[-1] == 0:
        return False, "The last loss is exactly 0: the model learns nothing any more."
    return True, f"All {len(losses)} losses are finite, the last is {losses[-1]:.4g}."


def answers(e: Evidence) -> Finding:
    """Each forward pass answered in finite numbers."""
    told, expected = e.observed.answers_finite, e.spec.protocol.steps * e.spec.count
    if len(told) != expected:
        return False, f"{len(told)} of {expected} forward passes told what they answered."
    bad = told.count(False)
    if bad:
        return False, f"{bad} of {expected} answers are not finite."
    return True, f"All {expected} answers are finite."


def mfu(e: Evidence) -> Finding:
    """No device does more than its peak."""
    m = e.measurement
    known = [("data-sheet", m.mfu), ("achievable", m.mfu_achievable)]
    name, share = next(((n, s) for n, s in known if s is not None), ("", None))
    if share is None:
        return True, "No peak is known for this device and precision."
    return share <= 1, f"MFU is {share:.1%} of the {name} peak."


def power(e: Evidence) -> Finding:
    """No device takes much more than it is rated for."""
    used_w, rated_w = e.measurement.power_w, e.device.power_w
    if used_w is None or rated_w is None:
        return True, "Energy was not counted, or no rated power is known."
    allowed_w = rated_w * e.spec.count
    said = f"The devices took {used_w:.4g} W on average, rated for {allowed_w:.4g} W."
    return used_w <= POWER_TOLERANCE * allowed_w, said
