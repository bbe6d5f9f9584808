"""The checks that a run's numbers must pass before they count, and whether all runs ended well."""

import math
from collections.abc import Callable
from pathlib import Path

from feedrate.config.settings import Task
from feedrate.core.errors import ExpectedError
from feedrate.core.files import write_text
from feedrate.core.paths import OUTCOME_NAME
from feedrate.core.processes import command_text
from feedrate.core.variables import UNSET, driver_call
from feedrate.devices.host import parse_list
from feedrate.devices.placement import cpus_text
from feedrate.results import conformity
from feedrate.results.conformity import DISTURBED, MOST_ATTEMPTS, Evidence, Judgement, joined
from feedrate.results.files import RUNS, read_csv
from feedrate.results.measurement import losses_of, step_sum, windows_of
from feedrate.results.record import Check
from feedrate.results.schema import BAD

STEP_SUM_TOLERANCE, STEP_SUM_SLACK_S = 0.05, 0.1
"""Share and seconds by which the sum of the step times may differ from the window's wall time: one
synchronisation at each end of the window lies outside the steps."""
MOST_SKIPPED = 0.05
"""Share of skipped updates above which a rate leaves out too much of the optimizer's work. Once the
loss scale fits, GradScaler tries a larger one every 2,000 steps (`growth_interval`)."""
LISTED = 20  # number of failures that `confirm_results` lists
POWER_TOLERANCE = 1.2
"""Times its rated power that a device may be measured to take: counters are off by some percent."""


def window_after_warmup(e: Evidence) -> Judgement:
    """The window begins right after the warm-up and ends with the last step."""
    warmup, last = e.spec.protocol.warmup_steps, e.spec.protocol.steps
    first = warmup + 1
    ends = {(w.first_step, w.last_step) for w in windows_of(e.ranks).values()}
    if ends == {(first, last)} and e.measurement.steps == last - first + 1:
        return True, f"The window is steps {first} to {last}, after {warmup} warm-up steps."
    start, end = ends.pop() if len(ends) == 1 else (None, None)
    steps = f"steps {start} to {end} ({e.measurement.steps} counted)"
    return False, f"The window is {steps}, expected {first} to {last}."


def samples_identity(e: Evidence) -> Judgement:
    """Samples = steps x batch x accumulation x world size, on each rank too."""
    train, m = e.spec.settings.train, e.measurement
    of_rank = m.steps * train.batch_size * train.gradient_accumulation
    expected = of_rank * e.spec.count
    product = (
        f"{m.steps} steps x {train.batch_size} x {train.gradient_accumulation} "
        f"x {e.spec.count} ranks = {expected} samples"
    )
    if e.spec.settings.loader.last_batch == "keep":
        # The last batch of an epoch may be smaller, or padded to the others' size.
        return 0 < m.samples <= expected, f"At most {product}; {m.samples} were counted."
    if m.samples != expected:
        return False, f"{product}, but {m.samples} were counted."
    counts = [window.samples for window in windows_of(e.ranks).values()]
    if any(count != of_rank for count in counts):
        return False, f"Expected {of_rank} samples per rank, counted {joined(counts)}."
    return True, f"{product}, as counted."


def step_times_sum(e: Evidence) -> Judgement:
    """The steps add up to the window's wall time, within 5% and 0.1 s."""
    total, wall = step_sum(e.ranks), e.measurement.wall_s
    if total is None:
        return False, "There are no step times to compare with the window."
    passed = abs(total - wall) <= STEP_SUM_TOLERANCE * wall + STEP_SUM_SLACK_S
    return passed, f"The steps add up to {total:.4g} s, the window took {wall:.4g} s."


def loss_finite(e: Evidence) -> Judgement:
    """In training: there are losses, all are finite, and the last is not exactly 0. Losses of
    evaluations are finite too, and norms of gradients unless fp16 skips such updates."""
    losses = losses_of(e.ranks)
    if not losses:
        return False, "No loss was reported."
    bad = [loss for loss in losses if not math.isfinite(loss)]
    if bad:
        return False, f"{len(bad)} of {len(losses)} losses are not finite."
    names = list(e.not_finite)
    if e.measurement.skipped_updates is not None and "grad_norm" in names:
        names.remove("grad_norm")
    if names:
        return False, f"In the Trainer's logs, {joined(names)} is not finite."
    if losses[-1] == 0:
        return False, "The last loss is exactly 0: the model has stopped learning."
    return True, f"All {len(losses)} losses are finite, the last is {losses[-1]:.4g}."


def updates_made(e: Evidence) -> Judgement:
    """In training: at most 5% of the window's updates were skipped because fp16 overflowed."""
    skipped, steps = e.measurement.skipped_updates, e.measurement.steps
    if skipped is None:
        return True, "No loss was scaled."
    return skipped <= MOST_SKIPPED * steps, f"{skipped} of {steps} updates were skipped."


def answers_finite(e: Evidence) -> Judgement:
    """In inference: every pass reported its answer, and all answers are finite."""
    steps = [step for events in e.ranks.values() for step in events.steps]
    answers = [step.finite for step in steps if step.finite is not None]
    expected = e.spec.protocol.steps * e.spec.count
    if len(answers) != expected:
        return False, f"{len(answers)} of {expected} forward passes reported their answer."
    if not all(answers):
        return False, f"{answers.count(False)} of {expected} answers are not finite."
    return True, f"All {expected} answers are finite."


def mfu_at_most_100_percent(e: Evidence) -> Judgement:
    """MFU is at most 1 (of the data sheet's peak, else of the achievable one)."""
    share, name = e.measurement.mfu, "data-sheet"
    if share is None:
        share, name = e.measurement.mfu_achievable, "achievable"
    if share is None:
        return True, "No peak is known for this device and precision."
    return share <= 1, f"MFU is {100 * share:.3g}% of the {name} peak."


def power_within_rating(e: Evidence) -> Judgement:
    """The devices took at most 1.2 times the `power_w` of `config/devices.yaml`, if known."""
    used_w, rated_w = e.measurement.power_w, e.device.power_w
    if used_w is None or rated_w is None:
        return True, "Energy was not counted, or no rated power is known."
    allowed_w = rated_w * e.spec.count
    detail = f"The devices took {used_w:.4g} W on average, rated for {allowed_w:.4g} W."
    return used_w <= POWER_TOLERANCE * allowed_w, detail


def cores_kept(e: Evidence) -> Judgement:
    """When the warm-up ended, each rank and its loader workers could still use all cores of the
    rank. On one host, the ranks saw all cores that the job was granted."""
    granted = e.outcome.machine_before.get("cores_granted") if e.outcome else None
    for rank, events in e.ranks.items():
        start = events.start
        if start is None:
            continue
        if granted and e.spec.nodes == 1 and (start.cores_granted or granted) < granted:
            return False, f"Rank {rank} saw {start.cores_granted} of {granted} granted cores."
        usable = parse_list(events.machines[0].cores or "") if events.machines else []
        if usable and not set(parse_list(start.cores or "")).issubset(usable):
            cores = f"the cores {start.cores}, and could use {cpus_text(usable)}"
            return False, f"Rank {rank} was bound to {cores}."
    return True, "No rank lost cores."


_ALL: tuple[Callable[[Evidence], Judgement], ...] = (
    conformity.all_ranks_reported, conformity.world_size,
    window_after_warmup, samples_identity, step_times_sum,
    loss_finite, updates_made, answers_finite, mfu_at_most_100_percent, power_within_rating,
    conformity.device_model, conformity.decode_path, conformity.library,
    conformity.pixels, conformity.attention, conformity.strategy, conformity.fp32,
    conformity.data_digest, conformity.computation, conformity.equal_weights,
    cores_kept, conformity.alone_on_host, conformity.undisturbed,
)  # fmt: skip
CHECKS = {check.__name__: check for check in _ALL}
"""By name, in the order of the report; docs/results.md shows their docstrings."""
SUSPECTS = ("ACCELERATE_", "PYTORCH_", "TORCH_ALLOW_", "TORCHDYNAMO_", "TORCHINDUCTOR_", UNSET)
"""How the variables begin that may be why a check failed."""
ONLY_IF_FAILED = {
    "logs_readable": "Listed only if it fails: events or outcome lack what they must contain.",
    "logs_unchanged": "Listed only if it fails: logs are not those that the job left.",
    "identity": "Listed only if it fails: the folder has the name of another run.",
}
"""Checks that `assemble` makes."""
_TRAINING = "loss_finite", "updates_made", "strategy", "equal_weights"
ONLY_OF: dict[str, Task] = {**dict.fromkeys(_TRAINING, "training"), "answers_finite": "inference"}
"""Checks of one task alone: forward passes have no loss, and their ranks exchange nothing."""


def check_run(evidence: Evidence) -> list[Check]:
    """Every check of the run's task, with its finding."""
    checks, task, start = [], evidence.spec.task, evidence.first.start
    suspects = []
    for variable, value in start.environment.items() if start else ():
        if variable.startswith(SUSPECTS):
            suspects.append(f"{variable.removeprefix(f'{UNSET}_')}={value}")
    for name, check in CHECKS.items():
        if ONLY_OF.get(name, task) == task:
            passed, detail = check(evidence)
            if suspects and not passed and name not in DISTURBED:
                detail = f"{detail} The job's environment has {joined(suspects)}."
            checks.append(Check(name=name, passed=passed, detail=detail))
    return checks


def confirm_results(results: list[Path], out: Path) -> None:
    """Write `out` if no run in `results` (results.csv of each study) failed. Raises ExpectedError
    with a short list of the runs that failed, are missing, or have numbers that a check rejects."""
    rows = [r for file in results for r in read_csv(file, RUNS) if not r.get("measured_as")]
    tried = sum(row["status"] != "unsupported" for row in rows)
    problems: list[str] = []
    disturbed: list[str] = []  # so often that only --forcerun measures them again
    for row in rows:
        if row["status"] not in BAD:
            continue
        name = f"{row['study']} {row['device']} {row['cell']} rep {row['repeat']}"
        problems.append(f"{name}: {row['status']}: {row['cause']}")
        failed = row["failed_checks"].split(";")
        if (row["attempt"] or 1) >= MOST_ATTEMPTS and not DISTURBED.isdisjoint(failed):
            disturbed.append(f"{row['folder']}/{OUTCOME_NAME}")
    if not problems:
        write_text(out, f"{tried} runs, none failed\n")
        return
    lines = [f"{len(problems)} of {tried} runs did not end well; the report shows them:"]
    lines += problems[:LISTED]
    if len(problems) > LISTED:
        lines.append(f"… and {len(problems) - LISTED} more")
    options, advice, call = [], "", driver_call()
    if disturbed:
        options = ["--forcerun", *disturbed]
        advice = f" (disturbed {MOST_ATTEMPTS} times: stop other work first)"
    command = command_text("run", *options, *(call.choices if call else ()))
    raise ExpectedError("\n  ".join(lines) + f"\nTo measure them again{advice}: {command}")
