"""One run from claim to outcome: trained here, or by a job that was at it already."""

import argparse
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate import variables
from feedrate.config.settings import RunSpec
from feedrate.config.timeouts import timeout_min
from feedrate.data.manifest import DataError, check_prepared
from feedrate.data.stored import check_store, store_folder
from feedrate.data.weights import check_fetched
from feedrate.devices.base import DeviceError
from feedrate.devices.host import machine_state
from feedrate.devices.launch import prepare
from feedrate.endings import tell
from feedrate.host_lock import host_lock, lock_path
from feedrate.models.checkpoint import fetched_index
from feedrate.secrets import Masker
from feedrate.train import outcome as outcomes
from feedrate.train.claim import Claim, LostClaim, history, newest, seize
from feedrate.train.finished import adopt
from feedrate.train.holder import this_process
from feedrate.train.judge import MachineFault, Status, judge
from feedrate.train.ladder import Made, not_tried, pruned_by
from feedrate.train.predecessor import ending_of_this_job, told, verdict_of
from feedrate.train.progress import ProgressLine
from feedrate.train.supervise import Interrupted, Watch, run_processes
from feedrate.train.vigil import take
from feedrate.train.workspace import give_up, keep_log, open_attempt, publish

PROGRAM = "feedrate.train"
"""What its lines on stderr begin with."""
FAULTS = (DataError, DeviceError, MachineFault)
"""What the machine or the data is to blame for: another try may do better."""


class Attendance:
    """This job's part in a run."""

    def __init__(self, spec: RunSpec, options: argparse.Namespace, watch: Watch) -> None:
        self._spec, self._options, self._watch = spec, options, watch
        self._value = msgspec.to_builtins(spec)
        self._run: Path = options.out
        self._me = this_process(outcomes.identity(spec, options))
        quiet = options.quiet or os.environ.get(variables.QUIET) == "1"
        self._progress = ProgressLine(spec, quiet=quiet)

    def to_the_end(self) -> None:
        """Stay until the run has its outcome. Raises one of FAULTS, Interrupted or Claimed."""
        broken = _broken(self._spec, self._options.data.parent)
        if broken and not self._is_last:
            raise broken
        self._run.mkdir(parents=True, exist_ok=True)
        met = set[str]()
        while True:
            claim, seen = take(self._run, self._me, self._watch.check, self._progress.tell)
            met |= seen
            try:
                with claim, self._watch.minding(claim.beat):
                    self._settle(claim, met, broken)
            except LostClaim as loss:
                met.add(loss.token)
                self._progress.tell(f"{loss}: its result is waited for")
            else:
                return

    def record_lost(self, cause: str) -> None:
        """Leave the outcome of a job whose tries were all lost without a word: what they left, what
        Slurm tells of them, or else `cause`. A job that is still at it loses the run."""
        self._run.mkdir(parents=True, exist_ok=True)
        last = newest(self._run)
        with seize(self._run, self._me) as claim:
            since = last.holder.since if last and last.holder else ""
            if not self._have(claim, set(), since):
                self._give_up(claim, outcomes.without_run(self._me.identity, self._options, cause))

    @property
    def _is_last(self) -> bool:
        """Whether no other try follows; False outside a workflow."""
        number = self._options.try_
        return number is not None and number > int(os.environ.get(variables.RETRIES, "0"))

    def _settle(self, claim: Claim, met: set[str], broken: DataError | None) -> None:
        """Bring the run to its outcome, holding the claim."""
        if self._have(claim, met, self._me.since):
            return
        made = Made(self._me.identity.source, self._me.identity.data)
        if cell := pruned_by(self._spec, made, self._run):
            status: Status = "out_of_memory"
            outcome = outcomes.without_run(
                self._me.identity,
                self._options,
                not_tried(cell),
                status=status,
                infrastructure=False,
            )
            self._give_up(claim, outcome)
            return
        try:
            if broken:
                raise broken
            self._train(claim)
        except Interrupted as interruption:
            claim.leave()  # first of all: the next question may take longer than is left
            claim.ending = ending_of_this_job()
            why = told(claim.ending)
            raise Interrupted(
                f"{interruption}{why and f' ({why})'}", interruption.exit_code
            ) from None
        except FAULTS as fault:
            if not self._is_last:
                raise
            tell(PROGRAM, fault)
            outcome = outcomes.without_run(self._me.identity, self._options, str(fault))
            self._give_up(claim, outcome)

    def _have(self, claim: Claim, met: set[str], since: str) -> bool:
        """Whether the outcome is there without training: adopted, or plain from earlier tries."""
        if outcome := adopt(self._run, self._me.identity, met):
            self._progress.tell(f"another job of this run has finished it: {outcome['status']}")
            return True
        earlier = (sight for sight in history(self._run) if sight.number < claim.number)
        verdict = verdict_of(self._run, earlier, self._me.identity, since, self._me.job)
        if verdict:
            outcome = outcomes.without_run(
                self._me.identity,
                self._options,
                verdict.cause,
                status=verdict.status,
                infrastructure=verdict.status == "failed",
            )
            self._give_up(claim, outcome)
        return verdict is not None

    def _give_up(self, claim: Claim, outcome: dict[str, Any]) -> None:
        claim.renew()
        give_up(self._run, self._value, outcome, self._me.token)
        claim.clear()
        self._tell(outcome)

    def _train(self, claim: Claim) -> None:
        """Train alone on this host, and put in place what came of it."""
        with host_lock(lock_path(), self._progress.tell, self._watch.check) as lock:
            resume = self._options.resume
            attempt = open_attempt(self._run, self._me.token, self._value, resume=resume)
            try:
                outcome = self._work(attempt, lock)
                claim.renew()
            except LostClaim:
                shutil.rmtree(attempt, ignore_errors=True)
                raise
            except MachineFault as fault:
                log = keep_log(attempt)
                raise MachineFault(f"{fault}; see {log}" if log.exists() else str(fault)) from None
            except (Interrupted, DeviceError):
                keep_log(attempt)
                raise
            publish(attempt, outcome, self._me.token)
            claim.clear()
        self._tell(outcome)

    def _work(self, attempt: Path, lock: int) -> dict[str, Any]:
        """Run the job's processes in the folder `attempt`; the outcome."""
        folders = [attempt, self._options.data.parent]
        launch = prepare(self._spec, self._worker(attempt), folders, os.environ)
        state, facts = machine_state(), outcomes.facts(self._me.identity, self._options)
        started, start_s = datetime.now(UTC), time.monotonic()
        ending, peak_gib = run_processes(
            attempt,
            launch.command,
            launch.environment,
            limit_min=timeout_min(self._spec),
            lock=lock,
            watch=self._watch,
            progress=self._progress,
        )
        verdict = judge(self._spec, attempt, ending)
        return {
            **facts,
            "status": verdict.status,
            "infrastructure": False,
            "cause": Masker()(verdict.cause),
            "exit_code": ending.exit_code,
            "started_at": started.isoformat(timespec="seconds"),
            "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "duration_s": round(time.monotonic() - start_s, 3),
            "machine_before": state,
            "host_peak_memory_gib": peak_gib,
        }

    def _worker(self, attempt: Path) -> list[str]:
        """The worker's module and arguments."""
        options = self._options
        command = ["feedrate.train.worker", "--run", str(attempt)]
        command += ["--data", str(options.data.parent)]
        if options.resume:
            command.append("--resume")
        if options.keep_weights and self._spec.repeat == 1:
            command.append("--keep-weights")
        return command

    def _tell(self, outcome: dict[str, Any]) -> None:
        if outcome["cause"]:
            self._progress.tell(f"{outcome['status']}: {outcome['cause']}")


def _broken(spec: RunSpec, prepared: Path) -> DataError | None:
    """What is wrong with the data and the fetched weights that the run reads; looked at before any
    claim, as it may take minutes."""
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
