"""The job of a run: `python -m feedrate train --spec SPEC --data MANIFEST --out RUN_DIR …`.

Brings one run to its outcome: trained here, adopted from a job that was already at work on it, or
decided by what earlier tries and smaller cells showed. docs/architecture.md draws the states, and
lists the ends with their exit codes: a fault of the machine leaves no outcome but in the last try.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import launcher_limit
from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec, timeout_min
from feedrate.core import variables
from feedrate.core.errors import Masker, explain_os_error, tell
from feedrate.core.files import digest_file, digest_value
from feedrate.core.paths import OUTCOME_NAME, SPEC_NAME
from feedrate.data.hub import check_fetched
from feedrate.data.manifest import DataError, check_prepared, check_store, store_folder
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_name, machine_state, other_training_jobs
from feedrate.devices.launch import prepare
from feedrate.jobs import earlier, outcome, run_lock
from feedrate.jobs.events import Result
from feedrate.jobs.outcome import MachineFault
from feedrate.jobs.processes import Interrupted, ProgressLine, StopRequests, run_processes
from feedrate.jobs.run_lock import Holder, Identity, LostLock, RunLock
from feedrate.models.build import fetched_index

SCHEMA = 1
"""Version of outcome.json."""
FAULTS = (DataError, DeviceError, MachineFault)
"""Faults of the machine or the data: another try may succeed."""


@dataclass(frozen=True)
class Supervisor:
    """Brings one run to its outcome; the methods are the states in which a job can be."""

    spec: RunSpec
    data: Path
    """The dataset's manifest.json."""
    run: Path
    me: Holder
    requests: StopRequests
    progress: ProgressLine
    _: KW_ONLY
    try_: int | None
    """Snakemake's count of its tries, from 1; None outside a workflow."""
    resume: bool
    winoground: Path | None = None

    def finish(self) -> None:
        """CHECKING, and WAITING for the lock. Raises one of FAULTS, Interrupted or RunConflict."""
        fault = data_fault(self.spec, self.data.parent)
        if fault and not self._is_last_try:
            raise fault
        self.run.mkdir(parents=True, exist_ok=True)
        seen = set[str]()
        while True:
            lock, holders = run_lock.acquire(
                self.run, self.me, self.requests.check, self.progress.report
            )
            seen |= holders
            try:
                with lock, self.requests.also_checking(lock.heartbeat):
                    self._finish_locked(lock, seen, fault)
            except LostLock as loss:
                seen.add(loss.token)
                self.progress.report(f"{loss}: waiting for its result")
            else:
                return

    def record_lost(self, cause: str) -> None:
        """Record the outcome of a run whose tries were all lost without one: from what they left,
        from Slurm's records, or else `cause`. A job that is still at work loses the lock."""
        self.run.mkdir(parents=True, exist_ok=True)
        last = run_lock.newest(self.run)
        with run_lock.take_over(self.run, self.me) as lock:
            since = last.holder.since if last and last.holder else ""
            if not self._is_known(lock, set(), since):
                self._record(lock, Result("failed", cause))

    @property
    def _is_last_try(self) -> bool:
        """Whether no other try follows; False outside a workflow."""
        return self.try_ is not None and self.try_ > int(os.environ.get(variables.RETRIES, "0"))

    def _finish_locked(self, lock: RunLock, seen: set[str], fault: DataError | None) -> None:
        """LOCKED: find the outcome, or train for it."""
        if self._is_known(lock, seen, self.me.since):
            return
        made = self.me.identity
        inputs = partial(earlier.inputs_digest, prepared=self.data.parent)
        if cell := earlier.pruned_by(self.spec, (made.source, made.data), inputs, self.run):
            self._record(lock, Result("out_of_memory", earlier.not_tried(cell)))
            return
        try:
            if fault:
                raise fault
            self._train(lock)
        except Interrupted as interruption:
            lock.release()  # before asking Slurm, which may take longer than is left
            lock.reason = earlier.slurm_stop_reason()
            why = earlier.describe_stop(lock.reason)
            raise Interrupted(
                f"{interruption}{why and f' ({why})'}", interruption.exit_code
            ) from None
        except (*FAULTS, OSError) as error:
            if not self._is_last_try:
                raise
            why = explain_os_error(error) if isinstance(error, OSError) else str(error)
            tell("feedrate train", why)
            self._record(lock, Result("failed", why))

    def _is_known(self, lock: RunLock, seen: set[str], since: str) -> bool:
        """ADOPTED or DECIDED: whether the run now has its outcome without training."""
        if adopted := outcome.adopt(self.run, self.me.identity, seen):
            self.progress.report(f"another job of this run has finished it: {adopted['status']}")
            return True
        before = (entry for entry in run_lock.history(self.run) if entry.number < lock.number)
        result = earlier.result_of_earlier_tries(self.run, before, self.me, since)
        if result:
            self._record(lock, result)
        return result is not None

    def _record(self, lock: RunLock, result: Result) -> None:
        """DECIDED: write the outcome of a job whose processes did not start or did not end; if it
        failed, the machine is to blame."""
        ended = self._outcome(result, datetime.now(UTC), 1, read_commit())
        ended["infrastructure"] = result.status == "failed"
        lock.renew()
        spec = msgspec.to_builtins(self.spec)
        outcome.publish_without_results(self.run, spec, ended, self.me.token)
        self._close(lock, ended)

    def _train(self, lock: RunLock) -> None:
        """RUNNING alone on this host, then PUBLISHED."""
        with host_lock(lock_name(), self.progress.report, self.requests.check) as descriptor:
            spec = msgspec.to_builtins(self.spec)
            attempt = outcome.open_attempt(self.run, self.me.token, spec, resume=self.resume)
            try:
                ended = self._run_processes(attempt, descriptor)
                lock.renew()  # nobody may take over while files are moved
            except LostLock:
                shutil.rmtree(attempt, ignore_errors=True)
                raise
            except MachineFault as fault:
                log = outcome.keep_log(attempt)
                raise MachineFault(f"{fault}; see {log}" if log.exists() else str(fault)) from None
            except (Interrupted, DeviceError):
                outcome.keep_log(attempt)
                raise
            outcome.publish(attempt, ended, self.me.token)
        self._close(lock, ended)

    def _close(self, lock: RunLock, ended: dict[str, Any]) -> None:
        lock.remove_older()
        if ended["cause"]:
            self.progress.report(f"{ended['status']}: {ended['cause']}")

    def _run_processes(self, attempt: Path, descriptor: int) -> dict[str, Any]:
        """Run the processes, which inherit the host's lock, in `attempt`; return the outcome."""
        module = ["feedrate", "worker", "--run", str(attempt), "--data", str(self.data.parent)]
        if self.resume:
            module.append("--resume")
        folders = [attempt, self.data.parent]
        if self.winoground:
            module += ["--winoground", str(self.winoground)]
            folders.append(self.winoground.parent)
        repository = os.environ.get(variables.PUSH_TO_HUB)
        if repository and self.spec.repeat == 1 and self.spec.task == "training":
            module += ["--push-to", repository]
        launch = prepare(self.spec, module, folders, os.environ)
        state, commit = machine_state(), read_commit()
        started, start_s = datetime.now(UTC), time.monotonic()
        end = run_processes(
            attempt,
            launch,
            limit_min=timeout_min(self.spec),
            lock=descriptor,
            requests=self.requests,
            progress=self.progress,
        )
        # Another job that began later is seen only now.
        state["other_training_jobs"] = max(state["other_training_jobs"], other_training_jobs())
        result = outcome.classify_exit(self.spec, attempt, end)
        return {
            **self._outcome(result, started, end.exit_code, commit),
            "duration_s": round(time.monotonic() - start_s, 3),
            "machine_before": state,
            "host_peak_memory_gib": end.peak_gib,
        }

    def _outcome(
        self, result: Result, started: datetime, exit_code: int, commit: str
    ) -> dict[str, Any]:
        """The outcome of a job that ends now, and began at this commit."""
        made, mask = self.me.identity, Masker()
        command = ["python", "-m", "feedrate", "train", "--spec", str(self.run / SPEC_NAME)]
        command += ["--data", str(self.data), "--out", str(self.run)]
        return {
            "schema": SCHEMA,
            "attempt": made.attempt,
            "command": mask(shlex.join(command)),
            "commit": commit,
            "source_digest": made.source,
            "data_digest": made.data,
            "inputs_digest": made.inputs,
            "spec_digest": made.spec,
            "status": result.status,
            "infrastructure": False,
            "cause": mask(result.cause),
            "exit_code": exit_code,
            "started_at": started.isoformat(timespec="seconds"),
            "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def read_commit() -> str:
    """The project's commit, with `-dirty` if files differ from it; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    folder = Path(__file__).parent
    try:
        return subprocess.check_output(
            command, cwd=folder, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def data_fault(spec: RunSpec, prepared: Path) -> DataError | None:
    """The fault of the data or weights, if any. This may take minutes: before the lock."""
    store, fetched = store_folder(spec.settings, prepared), fetched_index(spec.settings.model)
    try:
        check_prepared(prepared)
        if store:
            check_store(store)
        if fetched:
            check_fetched(fetched)
    except DataError as error:
        return error
    return None


def train(
    spec: RunSpec,
    data: Path,
    out: Path,
    *,
    source_digest: str = "",
    attempt: int = 1,
    try_: int | None = None,
    winoground: Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> None:
    """Bring one run to its outcome.

    --data            the dataset's manifest.json
    --out             the run's folder
    --source-digest   digest of the measured code
    --attempt         number of the attempt, from 1; each failure of the run adds 1
    --try             Snakemake's count of its tries, from 1; the last records a machine fault
    --winoground      examples.json, on which the model is evaluated too
    --resume          continue from the newest checkpoint
    --quiet           print no progress
    """
    requests = StopRequests()
    check_protocol(spec)
    me = run_lock.this_holder(identity(spec, data, source_digest, attempt))
    progress = ProgressLine(spec, quiet=quiet)
    supervisor = Supervisor(
        *(spec, data, out, me, requests, progress), try_=try_, resume=resume, winoground=winoground
    )
    if lost := os.environ.get(variables.LOST):
        supervisor.record_lost(read_cause(lost, out))
    else:
        supervisor.finish()


def identity(spec: RunSpec, data: Path, source_digest: str, attempt: int) -> Identity:
    """The identity of the result that a job of these options makes."""
    return Identity(
        spec=digest_value(msgspec.to_builtins(spec)),
        source=source_digest,
        data=digest_file(data) if data.is_file() else "",
        inputs=earlier.inputs_digest(spec.settings, data.parent),
        attempt=attempt,
    )


def check_protocol(spec: RunSpec) -> None:
    """Raise ConfigError if no step is left to measure, or if no launcher starts the ranks."""
    protocol = spec.protocol
    if protocol.steps <= protocol.warmup_steps:
        raise ConfigError(
            f"protocol.steps: {protocol.steps} leaves no step to measure after "
            f"protocol.warmup_steps: {protocol.warmup_steps}"
        )
    if spec.count > (most := launcher_limit(spec.launcher, "MAX_PROCESSES")):
        raise ConfigError(
            f"launcher: {spec.launcher} starts at most {most:g} process, but count is {spec.count}"
        )


def read_cause(file: str, out: Path) -> str:
    """The cause of the outcome in `out`, from a file of lost runs. Raises ConfigError."""
    try:
        causes = json.loads(Path(file).read_text(encoding="utf-8"))
        found = {Path(path).resolve(): str(cause) for path, cause in causes.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{variables.LOST}: {file} is not a JSON object of causes ({error})"
        ) from None
    path = out / OUTCOME_NAME
    if path.resolve() not in found:
        raise ConfigError(f"{variables.LOST}: {file} gives no cause for {path}; nothing is trained")
    return found[path.resolve()]
