"""Results that earlier jobs decide, so that nothing is trained.

Earlier tries of a run decide its result if Slurm ended them for lack of memory or time. A cell that
ran out of memory decides for cells that need more: in a study's `ladder`, later levels need more
memory. Jobs get the ladder in an environment variable, outside the spec, so that a new level reruns
nothing. An outcome counts only if it was made with the current settings, code, data and weights.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.plan import LevelSettings
from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.config.values import Level, cell_name
from feedrate.core import slurm, variables
from feedrate.core.files import digest_file, digest_value
from feedrate.core.paths import OUTCOME_NAME
from feedrate.data.hub import PATTERNS
from feedrate.data.manifest import STORE_INDEX, store_folder
from feedrate.jobs.events import NOT_TRIED, Result
from feedrate.jobs.run_lock import Holder, LockEntry
from feedrate.models.build import fetched_index, local_folder

TIMEOUT = "TIMEOUT"
NEAR_MIN = 1.0
"""A job that is stopped this close to its limit has reached it: a site may signal early."""

Parts = dict[str, dict[str, Any]]
"""Settings by part and key, as plain values."""
Ladder = dict[str, list[tuple[Level, Parts]]]
"""For each factor its levels in order, each with all settings in which the levels differ."""


def result_of_earlier_tries(
    run: Path, earlier: Iterable[LockEntry], me: Holder, since: str
) -> Result | None:
    """The result that the earlier tries decide: too little memory, or the longest time limit. None
    if another try may do better: after a lost node, a preemption, or a shorter limit. `earlier` are
    the locks of `run` before that of `me`, newest first. A lock counts if it belongs to the driver
    that began at `since`, to the same identity and to another Slurm job."""
    tries = {
        entry.holder.job: entry
        for entry in reversed(list(earlier))
        if entry.holder
        and entry.holder.job not in ("", me.job)
        and entry.holder.since == since
        and entry.holder.identity.serves(me.identity)
    }
    ends = [_slurm_end(number, entry) for number, entry in tries.items()]
    if not ends:
        return None
    last = ends[-1]
    if last.state == slurm.OUT_OF_MEMORY:
        asked = f" of {last.memory}" if last.memory else ""
        return Result(
            "out_of_memory",
            f"Slurm killed the job for lack of host memory: its limit{asked} on {last.nodes} was "
            "too low; to try it with more, raise job.memory_gib of the device, or mem_mb in the "
            f"profile, and call again with --forcerun {run / OUTCOME_NAME}",
        )
    if last.state == TIMEOUT:
        limits = [end.limit_min for end in ends if end.state == TIMEOUT and end.limit_min]
        return _out_of_time(limits, slurm.find(me.job))
    return None


def _slurm_end(number: str, entry: LockEntry) -> slurm.Job:
    """How a try ended, from the reason that it left in its lock, else from Slurm's records."""
    with contextlib.suppress(ValueError):
        state, limit = entry.reason
        return slurm.Job(id=number, state=state, limit_min=float(limit))
    return slurm.find(number) or slurm.Job(id=number, state="")


def _out_of_time(limits: list[float], this: slurm.Job | None) -> Result | None:
    """The result of tries that hit these limits; None if this try's limit is or may be longer."""
    if this is None and len(limits) < 2:
        return None
    if this is not None and (this.limit_min is None or this.limit_min > max(limits, default=0.0)):
        return None
    listed = " and then ".join(f"{limit:g} min" for limit in limits)
    return Result(
        "failed",
        f"Slurm stopped the job at its time limit, {listed}: raise protocol.timeout_min, or the "
        "rule's runtime in the profile",
    )


def slurm_stop_reason() -> str:
    """Why Slurm stops this job, as words for the next try; empty if Slurm does not stop it."""
    job = slurm.find(os.environ.get(slurm.JOB_ID, ""))
    if job is None:
        return ""
    ran_min = job.ran_min or 0.0
    if job.limit_min and (job.reason == "TimeLimit" or ran_min >= job.limit_min - NEAR_MIN):
        return f"{TIMEOUT} {job.limit_min:g}"
    return job.state if job.is_over else ""


def describe_stop(reason: str) -> str:
    """The answer of `slurm_stop_reason` as a phrase for people."""
    state, _, limit = reason.partition(" ")
    if limit:
        return f"Slurm's time limit of {limit} min"
    return f"Slurm calls the job {state}" if state else ""


def ladders(project: Project) -> dict[str, dict[str, Ladder]]:
    """The ladders by study and device, for studies that have one."""
    return {
        name: {device: _ladder(project, name, device) for device in project.config.devices}
        for name, study in project.studies.items()
        if study.ladder
    }


def _ladder(project: Project, name: str, device: str) -> Ladder:
    study, by_level = project.studies[name], LevelSettings(project, name, device)
    ladder: Ladder = {}
    for factor in study.ladder:
        levels = study.factors[factor].levels
        made: list[Parts] = [msgspec.to_builtins(by_level.of({factor: level})) for level in levels]
        differ = {
            part: [key for key in values if any(one[part][key] != values[key] for one in made)]
            for part, values in made[0].items()
        }
        shown: list[Parts] = [
            {part: {key: one[part][key] for key in keys} for part, keys in differ.items() if keys}
            for one in made
        ]
        ladder[factor] = list(zip(levels, shown, strict=True))
    return ladder


def not_tried(cell: str) -> str:
    """The cause for a cell that is too large because the smaller `cell` was."""
    return f"{NOT_TRIED}{cell} ran out of memory, and this cell needs at least as much."


def inputs_digest(
    settings: Settings, prepared: Path, digest: Callable[[Path], str] = digest_file
) -> str:
    """Digest of the files besides the data that a run with these settings reads: the weights of a
    local checkpoint, the list of a fetched one, the index of the store next to the folder
    `prepared`. Empty if it reads none; files that are not here or not readable do not count."""
    files: list[Path] = []
    if local := local_folder(settings.model):
        files += sorted({file for pattern in PATTERNS for file in local.glob(pattern)})
    if fetched := fetched_index(settings.model):
        files.append(fetched)
    if store := store_folder(settings, prepared):
        files.append(store / STORE_INDEX)
    read: list[list[str]] = []
    for file in files:
        with contextlib.suppress(OSError):
            if file.is_file():
                read.append([file.name, digest(file)])
    return digest_value(read) if read else ""


def pruned_by(
    spec: RunSpec,
    made: tuple[str, str],
    inputs: Callable[[Settings], str],
    run: Path,
    cause: str | None = None,
) -> str | None:
    """The cell that ran out of memory, so that this one would too; None if there is none. With a
    `cause`, only the cell that it names counts. A cell counts if it differs only in factors of the
    ladder, and needs no more in any of them. `made` are the digests of the measured code and of the
    data, `inputs` gives that of `inputs_digest` for a cell, `run` is this run's folder."""
    for smaller in _smaller(spec):
        cell: str = smaller["cell"]
        if cause in (None, not_tried(cell)) and _ran_out(smaller, made, inputs, run):
            return cell
    return None


def _smaller(spec: RunSpec) -> Iterator[dict[str, Any]]:
    """The specs, as plain values, of cells that need no more in any factor, smallest first."""
    given = json.loads(os.environ.get(variables.LADDERS) or "{}")
    ladder: Ladder = given.get(spec.study, {}).get(spec.device, {})
    if not ladder:
        return
    steps = []
    for factor, known in ladder.items():
        order = [level for level, _ in known]
        if spec.levels[factor] not in order:
            return
        steps.append(known[: order.index(spec.levels[factor]) + 1])
    for chosen in itertools.product(*steps):
        levels = spec.levels | dict(zip(ladder, (level for level, _ in chosen), strict=True))
        if levels == spec.levels:
            continue
        smaller = msgspec.to_builtins(spec) | {"cell": cell_name(levels), "levels": levels}
        for _, parts in chosen:
            for part, settings in parts.items():
                smaller["settings"][part] |= settings
        yield smaller


def _ran_out(
    smaller: dict[str, Any], made: tuple[str, str], inputs: Callable[[Settings], str], run: Path
) -> bool:
    """Whether a run of the cell was tried and ran out of memory, and no run of it trained."""
    outcomes = list(_outcomes(run.parent.parent / smaller["cell"]))
    if not any(outcome.get("status") == "out_of_memory" for _, outcome in outcomes):
        return False

    read = inputs(msgspec.convert(smaller["settings"], Settings))

    def digest(repeat: int) -> str:
        """Digest of the cell's spec in that repeat: the seed rises by one with each repeat."""
        seed = smaller["seed"] + repeat - smaller["repeat"]
        return digest_value(smaller | {"repeat": repeat, "seed": seed})

    ended = {
        outcome.get("status")
        for repeat, outcome in outcomes
        if not str(outcome.get("cause", "")).startswith(NOT_TRIED)
        and (outcome.get("source_digest"), outcome.get("data_digest")) == made
        and outcome.get("spec_digest") == digest(repeat)
        and outcome.get("inputs_digest", read) == read
    }
    return "out_of_memory" in ended and "ok" not in ended


def _outcomes(cell: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cell's outcomes, each with the number of its repeat."""
    for path in cell.glob(f"rep*/{OUTCOME_NAME}"):
        with contextlib.suppress(OSError, ValueError):
            repeat = int(path.parent.name.removeprefix("rep"))
            outcome = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(outcome, dict):
                yield repeat, outcome
