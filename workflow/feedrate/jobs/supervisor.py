"""The job of a run: `python -m feedrate train --spec SPEC --data MANIFEST --out RUN_DIR …`.

Brings one run to its outcome: trained here, adopted from a job that was at it already, or decided
by what earlier tries and smaller cells showed. docs/architecture.md draws the states of a run. A
cell that fails or runs out of memory is an outcome, and the exit code is 0. A fault of the machine
(device absent, data not as prepared, disk full, stopped from outside) is one sentence on stderr, a
non-zero exit code and no outcome, so that the workflow tries again; in its last try, an absent
device or wrong data is a failed outcome too.
"""

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec, timeout_min
from feedrate.core import variables
from feedrate.core.errors import Masker, tell
from feedrate.core.paths import OUTCOME_NAME
from feedrate.data.hub import check_fetched
from feedrate.data.manifest import DataError, check_prepared, check_store, store_folder
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_path, machine_state
from feedrate.devices.launch import prepare
from feedrate.jobs import outcome as outcomes
from feedrate.jobs import run_lock, workspace
from feedrate.jobs.outcome import MachineFault, Options, Result
from feedrate.jobs.processes import Interrupted, ProgressLine, StopRequests, run_processes
from feedrate.jobs.pruning import Digests, not_tried, pruned_by
from feedrate.jobs.run_lock import LostLock, RunLock
from feedrate.models.build import fetched_index

FAULTS = (DataError, DeviceError, MachineFault)
"""Faults of the machine or the data: another try may succeed."""


class Supervisor:
    """Brings one run to its outcome; the methods are the states in which a job can be."""

    def __init__(self, spec: RunSpec, options: Options, requests: StopRequests) -> None:
        self._spec, self._options, self._requests = spec, options, requests
        self._run = options.out
        self._me = run_lock.this_holder(outcomes.identity(spec, options))
        self._progress = ProgressLine(spec, quiet=options.quiet)

    def run(self) -> None:
        """CHECKING, and WAITING for the lock. Raises one of FAULTS, Interrupted or RunConflict."""
        fault = data_fault(self._spec, self._options.data.parent)
        if fault and not self._is_last_try:
            raise fault
        self._run.mkdir(parents=True, exist_ok=True)
        seen = set[str]()
        while True:
            lock, holders = run_lock.acquire(
                self._run, self._me, self._requests.check, self._progress.report
            )
            seen |= holders
            try:
                with lock, self._requests.also_checking(lock.heartbeat):
                    self._finish(lock, seen, fault)
            except LostLock as loss:
                seen.add(loss.token)
                self._progress.report(f"{loss}: its result is waited for")
            else:
                return

    def record_lost(self, cause: str) -> None:
        """Record the outcome of a job whose tries were all lost without an outcome.

        It is what they left, or what Slurm says of them, or else `cause`. A job that is still at
        work loses the lock.
        """
        self._run.mkdir(parents=True, exist_ok=True)
        last = run_lock.newest(self._run)
        with run_lock.take_over(self._run, self._me) as lock:
            since = last.holder.since if last and last.holder else ""
            if not self._is_known(lock, set(), since):
                self._record(lock, Result("failed", cause))

    @property
    def _is_last_try(self) -> bool:
        """Whether no other try follows; False outside a workflow."""
        number = self._options.try_
        return number is not None and number > int(os.environ.get(variables.RETRIES, "0"))

    def _finish(self, lock: RunLock, seen: set[str], fault: DataError | None) -> None:
        """LOCKED: find the outcome, or train for it."""
        if self._is_known(lock, seen, self._me.since):
            return
        digests = Digests(self._me.identity.source, self._me.identity.data)
        if cell := pruned_by(self._spec, digests, self._run):
            self._record(lock, Result("out_of_memory", not_tried(cell)))
            return
        try:
            if fault:
                raise fault
            self._train(lock)
        except Interrupted as interruption:
            lock.release()  # before Slurm is asked, which may take longer than is left
            lock.reason = outcomes.slurm_stop_reason()
            why = outcomes.describe_stop(lock.reason)
            raise Interrupted(
                f"{interruption}{why and f' ({why})'}", interruption.exit_code
            ) from None
        except FAULTS as machine_fault:
            if not self._is_last_try:
                raise
            tell("feedrate train", machine_fault)
            self._record(lock, Result("failed", str(machine_fault)))

    def _is_known(self, lock: RunLock, seen: set[str], since: str) -> bool:
        """ADOPTED or DECIDED: whether the outcome is there without training."""
        if outcome := workspace.adopt(self._run, self._me.identity, seen):
            self._progress.report(f"another job of this run has finished it: {outcome['status']}")
            return True
        earlier = (entry for entry in run_lock.history(self._run) if entry.number < lock.number)
        result = outcomes.result_of_earlier_tries(self._run, earlier, self._me, since)
        if result:
            self._record(lock, result)
        return result is not None

    def _record(self, lock: RunLock, result: Result) -> None:
        """DECIDED: leave an outcome for which no process has run, or none to its end."""
        outcome = outcomes.outcome_without_processes(self._me.identity, self._options, result)
        lock.renew()
        spec = msgspec.to_builtins(self._spec)
        workspace.publish_without_results(self._run, spec, outcome, self._me.token)
        lock.remove_older()
        self._report(outcome)

    def _train(self, lock: RunLock) -> None:
        """RUNNING alone on this host, then PUBLISHED."""
        with host_lock(lock_path(), self._progress.report, self._requests.check) as descriptor:
            spec, resume = msgspec.to_builtins(self._spec), self._options.resume
            attempt = workspace.open_attempt(self._run, self._me.token, spec, resume=resume)
            try:
                outcome = self._run_processes(attempt, descriptor)
                lock.renew()  # nobody may take over while files are moved
            except LostLock:
                shutil.rmtree(attempt, ignore_errors=True)
                raise
            except MachineFault as fault:
                log = workspace.keep_log(attempt)
                raise MachineFault(f"{fault}; see {log}" if log.exists() else str(fault)) from None
            except (Interrupted, DeviceError):
                workspace.keep_log(attempt)
                raise
            workspace.publish(attempt, outcome, self._me.token)
            lock.remove_older()
        self._report(outcome)

    def _run_processes(self, attempt: Path, descriptor: int) -> dict[str, Any]:
        """Run the job's processes in the folder `attempt`, and return the outcome.

        They inherit `descriptor`, which holds the lock of the host.
        """
        options = self._options
        module = ["feedrate", "worker", "--run", str(attempt)]
        module += ["--data", str(options.data.parent)]
        if options.resume:
            module.append("--resume")
        if options.keep_weights and self._spec.repeat == 1:
            module.append("--keep-weights")
        launch = prepare(self._spec, module, [attempt, options.data.parent], os.environ)
        state, about = machine_state(), outcomes.facts(self._me.identity, options)
        started, start_s = datetime.now(UTC), time.monotonic()
        end = run_processes(
            attempt,
            launch.command,
            launch.environment,
            limit_min=timeout_min(self._spec),
            lock=descriptor,
            requests=self._requests,
            progress=self._progress,
        )
        result = outcomes.classify_exit(self._spec, attempt, end)
        return {
            **about,
            "status": result.status,
            "infrastructure": False,
            "cause": Masker()(result.cause),
            "exit_code": end.exit_code,
            "started_at": started.isoformat(timespec="seconds"),
            "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - start_s, 3),
            "machine_before": state,
            "host_peak_memory_gib": end.peak_gib,
        }

    def _report(self, outcome: dict[str, Any]) -> None:
        if outcome["cause"]:
            self._progress.report(f"{outcome['status']}: {outcome['cause']}")


def data_fault(spec: RunSpec, prepared: Path) -> DataError | None:
    """The fault of the data or the fetched weights that the run reads.

    The check may take minutes, so it comes before the lock.
    """
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
    resume: bool = False,
    keep_weights: bool = False,
    quiet: bool = False,
) -> None:
    """Bring one run to its outcome.

    --data            the dataset's manifest.json
    --out             the run's folder
    --source-digest   digest of the measured code
    --attempt         number of the attempt, from 1
    --try             Snakemake's count of its tries, from 1; in the last one a machine fault is an
                      outcome
    --resume          continue from the newest checkpoint
    --keep-weights    save the model of repeat 1, even if the protocol does not
    --quiet           print no progress
    """
    requests = StopRequests()
    check_protocol(spec)
    options = Options(
        data=data,
        out=out,
        source_digest=source_digest,
        attempt=attempt,
        try_=try_,
        resume=resume,
        keep_weights=keep_weights or bool(os.environ.get(variables.KEEP_WEIGHTS)),
        quiet=quiet or os.environ.get(variables.QUIET) == "1",
    )
    supervisor = Supervisor(spec, options, requests)
    lost = os.environ.get(variables.LOST)
    if lost:
        supervisor.record_lost(read_cause(lost, out))
    else:
        supervisor.run()


def check_protocol(spec: RunSpec) -> None:
    """Raise ConfigError where no step is left to measure, or no launcher starts the ranks."""
    protocol = spec.protocol
    if protocol.steps <= protocol.warmup_steps:
        raise ConfigError(
            f"protocol.steps: {protocol.steps} leaves no step to measure after "
            f"protocol.warmup_steps: {protocol.warmup_steps}"
        )
    if spec.count > 1 and spec.launcher == "single":
        raise ConfigError(f"launcher: single starts one process, and count is {spec.count}")


def read_cause(file: str, out: Path) -> str:
    """The cause of the outcome in `out`, from a file of lost runs. Raises ConfigError."""
    try:
        causes = json.loads(Path(file).read_text(encoding="utf-8"))
        found = {Path(path).resolve(): str(cause) for path, cause in causes.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{variables.LOST}: {file} is not a JSON object of causes ({error})"
        ) from None
    outcome = out / OUTCOME_NAME
    if outcome.resolve() not in found:
        raise ConfigError(
            f"{variables.LOST}: {file} gives no cause for {outcome}; nothing is trained"
        )
    return found[outcome.resolve()]
