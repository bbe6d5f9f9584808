"""The job of a run: `python -m feedrate train --spec SPEC --data MANIFEST --out RUN …`.

Brings one run to its outcome: trained here, or decided by earlier tries and smaller cells.
docs/architecture.md lists the ends with their exit codes.
"""

import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.spec import TIMEOUT_MIN, RunSpec
from feedrate.core import scheduler
from feedrate.core.errors import explain, tell
from feedrate.core.files import digest_file, digest_value, write_json
from feedrate.core.paths import OUTCOME_NAME, SPEC_NAME, TRAINER_NAME
from feedrate.core.processes import NO_ANSWER, ask
from feedrate.core.secrets import Masker
from feedrate.core.variables import driver_call
from feedrate.data.hub import check_fetched
from feedrate.data.manifest import DataError, check_prepared, check_store
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, machine_state, other_training_jobs
from feedrate.devices.launch import prepare
from feedrate.jobs import workplace
from feedrate.jobs.events import NOT_TRIED, Result
from feedrate.jobs.outcome import MachineFault, classify_exit
from feedrate.jobs.processes import Interrupted, ProgressLine, StopRequests, run_processes
from feedrate.jobs.worker import Options
from feedrate.models.build import fetched_index

SCHEMA = 2  # version of outcome.json
FAULTS = (DataError, DeviceError, MachineFault, OSError)  # another try may succeed


def train(
    spec: RunSpec,
    data: Path,
    out: Path,
    *,
    source_digest: str = "",
    try_: int | None = None,
    timeout_min: float = TIMEOUT_MIN,
    smaller: list[Path] | None = None,
    store: Path | None = None,
    winoground: Path | None = None,
    push_to: str = "",
    report_to: str = "",
    model_pattern: str = "",
    quiet: bool = False,
) -> None:
    """Bring one run to its outcome.

    --data            the dataset's manifest.json
    --out             the run's folder
    --source-digest   digest of the measured code
    --try             Snakemake's count of its tries, from 1; the last records a machine fault
    --timeout-min     minutes that the job may take
    --smaller         folders of runs that need no more memory: one that ran out of memory decides
    --store           index.json of the pictures prepared for the model
    --winoground      examples.json, on which the model is evaluated too
    --push-to         repository on the hub for the model
    --report-to       the Trainer's integrations, separated by commas
    --model-pattern   the name that the device must report
    --quiet           print no progress
    """
    call = driver_call()
    requests = StopRequests(call)
    progress = ProgressLine(spec, quiet=quiet or (call is not None and call.quiet))
    place = workplace.workplace(out, call.since if call else workplace.NO_CALL)
    job = Job(spec, data, out, place.path, source_digest, read_commit(), progress, requests)
    if workplace.is_complete(out):
        progress.report(f"{out} is complete already")
        return
    try:
        check_prepared(data.parent)  # this may take minutes: before the lock
        if store:
            check_store(store.parent)
        if fetched := fetched_index(spec.settings.model):
            check_fetched(fetched)
        if result := result_of_earlier_tries(out, place):
            job.publish(result)
        elif run := smaller_out_of_memory(smaller or []):
            cell = run.parent.name
            cause = f"{NOT_TRIED}{cell} ran out of memory, and this cell needs at least as much."
            job.publish(Result("out_of_memory", cause), smaller=str(run))
        else:
            options = Options(
                store=str(store.parent) if store else "",
                winoground=str(winoground or ""),
                push_to=push_to if spec.repeat == 1 and spec.task == "training" else "",
                report_to=tuple(filter(None, report_to.split(","))),
                model_pattern=model_pattern,
            )
            with host_lock(progress.report, requests.check) as locks:
                if workplace.is_complete(out):
                    progress.report(f"another job has published {out}: its result counts")
                else:
                    job.measure(options, timeout_min, locks)
    except Interrupted as stop:
        workplace.keep_log(place.path)
        reason = scheduler.why_stopped()
        message = f"{stop} ({reason})" if reason else str(stop)
        raise Interrupted(message, stop.exit_code) from None
    except FAULTS as fault:
        log = workplace.keep_log(place.path)
        if try_ is not None and try_ > (call.retries if call else 0):  # the last one
            cause = explain(fault)
            tell("feedrate train", cause)
            job.publish(Result("failed", cause), infrastructure=True)
        elif isinstance(fault, MachineFault) and log.exists():
            raise MachineFault(f"{fault}; see {log}") from None
        else:
            raise


@dataclass(frozen=True)
class Job:
    """One try of a run: measures it in a workplace, and publishes the result."""

    spec: RunSpec
    data: Path
    out: Path
    place: Path
    source_digest: str
    commit: str
    progress: ProgressLine
    requests: StopRequests

    def measure(self, options: Options, timeout_min: float, locks: Sequence[int]) -> None:
        """Run the worker with these options, and publish its result; it inherits the `locks`."""
        shutil.rmtree(self.place, ignore_errors=True)
        (self.place / TRAINER_NAME).mkdir(parents=True)
        write_json(self.place / SPEC_NAME, msgspec.to_builtins(self.spec))
        module = ["feedrate", "worker", "--run", str(self.place), "--data", str(self.data.parent)]
        module += ["--options", msgspec.json.encode(options).decode()]
        folders = [self.place, self.data.parent]
        folders += [Path(options.store)] if options.store else []
        folders += [Path(options.winoground).parent] if options.winoground else []
        launch = prepare(self.spec, module, folders, os.environ)
        machine = machine_state()
        started, start_s = datetime.now(UTC), time.monotonic()
        end = run_processes(
            self.place,
            launch,
            limit_min=timeout_min,
            locks=locks,
            requests=self.requests,
            progress=self.progress,
        )
        # Another job that began later is seen only now.
        machine["other_training_jobs"] = max(machine["other_training_jobs"], other_training_jobs())
        self.publish(
            classify_exit(self.spec, self.place, end),
            exit_code=end.exit_code,
            started_at=started.isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - start_s, 3),
            machine_before=machine,
            host_peak_memory_gib=end.peak_gib,
        )

    def publish(self, result: Result, **facts: Any) -> None:
        """Write the outcome with these facts, and publish the workplace as the run."""
        mask, call = Masker(), driver_call()
        identity, attempt = workplace.parts_of(self.out)
        command = ["python", "-m", "feedrate", "train", "--spec", str(self.out / SPEC_NAME)]
        command += ["--data", str(self.data), "--out", str(self.out)]
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.place.mkdir(parents=True, exist_ok=True)
        write_json(self.place / SPEC_NAME, msgspec.to_builtins(self.spec))
        files = sorted(path for path in self.place.rglob("*") if path.is_file())
        outcome = {
            "schema": SCHEMA,
            "identity": identity,
            "attempt": attempt,
            "call": call.since if call else "",
            "command": mask(shlex.join(command)),
            "commit": self.commit,
            "source_digest": self.source_digest,
            "data_digest": digest_file(self.data) if self.data.is_file() else "",
            "spec_digest": digest_value(msgspec.to_builtins(self.spec)),
            "status": result.status,
            "infrastructure": False,
            "cause": mask(result.cause),
            "exit_code": 1,
            "started_at": now,
            "ended_at": now,
            "files": {path.relative_to(self.place).as_posix(): digest_file(path) for path in files},
        }
        write_json(self.place / OUTCOME_NAME, outcome | facts)
        if not workplace.publish(self.place, self.out):
            self.progress.report(f"another job has published {self.out}: its result counts")
        elif result.cause:
            self.progress.report(f"{result.status}: {result.cause}")
        workplace.remove_ended(self.out)


def read_commit() -> str:
    """The project's commit, with `-dirty` if files differ from it; empty outside a repository."""
    # Git reads no clone of another user by itself. This one's code runs already.
    command = ["git", "-c", "safe.directory=*", "-C", str(Path(__file__).parent), "describe"]
    try:
        answer = ask([*command, "--always", "--dirty", "--abbrev=40", "--exclude=*"], limit_s=10)
    except NO_ANSWER:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def result_of_earlier_tries(run: Path, own: workplace.Workplace) -> Result | None:
    """The result, if the scheduler ended the last of this call's tries for lack of memory, or at a
    time limit that this try, in its `own` workplace, does not exceed. Else it may do better."""
    if own.since == workplace.NO_CALL:
        return None
    places = [place for place in workplace.leftovers(run) if place.since == own.since]
    jobs = [scheduler.find(place.job) for place in places if place.job not in ("", own.job)]
    ended_jobs = [job for job in jobs if job and job.is_over]
    if not ended_jobs:
        return None
    last = ended_jobs[-1]
    if last.state == scheduler.OUT_OF_MEMORY:
        limit = f"its limit of {last.memory}" if last.memory else "its limit"
        return Result(
            "out_of_memory",
            f"{scheduler.NAME} killed the job for lack of host memory: {limit} on {last.nodes} "
            "was too low; to try it with more, raise job.memory_gib of the device, or mem_mb in "
            f"the profile, and call again with --forcerun {run / OUTCOME_NAME}",
        )
    if last.state != scheduler.TIMEOUT:
        return None
    timeouts = [job for job in ended_jobs if job.state == scheduler.TIMEOUT]
    limits_min = [job.limit_min for job in timeouts if job.limit_min]
    job = scheduler.find(own.job)
    if job is None or job.limit_min is None or job.limit_min > max(limits_min, default=0.0):
        return None
    limits = " and then ".join(f"{limit:g} min" for limit in limits_min)
    return Result(
        "failed",
        f"{scheduler.NAME} stopped the job at its time limit, {limits}: raise "
        "protocol.timeout_min, or the rule's runtime in the profile",
    )


def smaller_out_of_memory(runs: Iterable[Path]) -> Path | None:
    """Of these runs, of cells that need no more memory (of a study's `ladder`), one that ran out of
    memory and of whose cell no run fitted. Runs that were not tried show nothing."""
    statuses: dict[Path, str] = {}
    for run in runs:
        with suppress(OSError, ValueError, KeyError):
            outcome = json.loads((run / OUTCOME_NAME).read_text(encoding="utf-8"))
            if "smaller" not in outcome:
                statuses[run] = outcome["status"]
    fitting = {run.parent for run, status in statuses.items() if status == "ok"}
    too_large = (run for run, status in statuses.items() if status == "out_of_memory")
    return next((run for run in too_large if run.parent not in fitting), None)
