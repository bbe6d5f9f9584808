"""The job entry: `python -m feedrate.jobs.supervisor --spec SPEC --data MANIFEST --out RUN_DIR …`.

Runs one training job and leaves its folder as docs/architecture.md says, `outcome.json` last. A
cell that fails or runs out of memory is an outcome, and the exit code is 0. A fault of the machine
(device absent, data not as prepared, disk full, stopped from outside) is one sentence on stderr, a
non-zero exit code and no outcome, so that the workflow tries again; in the last of its tries, an
absent device or wrong data is a failed outcome too. A job of the same run that is at work already
is waited for, and its outcome is this one's.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert, convert_text
from feedrate.config.spec import RunSpec, timeout_min
from feedrate.core import variables
from feedrate.core.errors import Masker, fail, tell
from feedrate.core.paths import OUTCOME_NAME
from feedrate.data.manifest import DataError, check_fetched, check_prepared
from feedrate.data.store import check_store, store_folder
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_path, machine_state
from feedrate.devices.launch import prepare
from feedrate.jobs import outcome as outcomes
from feedrate.jobs.failure import classify
from feedrate.jobs.ladder import Made, not_tried, pruned_by
from feedrate.jobs.outcome import MachineFault, Status, judge
from feedrate.jobs.predecessors import Claimed, ending_of_this_job, take, told, verdict_of
from feedrate.jobs.processes import Interrupted, Watch, run_processes
from feedrate.jobs.progress import ProgressLine
from feedrate.jobs.run_lock import Claim, LostClaim, history, newest, seize, this_process
from feedrate.jobs.workspace import adopt, give_up, keep_log, open_attempt, publish
from feedrate.models.checkpoint import fetched_index

# One run from claim to outcome: trained here, or by a job that was at it already.

PROGRAM = "feedrate.jobs.supervisor"
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
        command = ["feedrate.jobs.worker", "--run", str(attempt)]
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


def main(arguments: list[str] | None = None) -> int:
    """Run the job; the exit code."""
    options = parse_arguments(arguments)
    watch = Watch()
    try:
        spec = read_spec(options.spec)
        check_protocol(spec)
        lost = os.environ.get(variables.LOST)
        if lost:
            Attendance(spec, options, watch).record_lost(read_cause(lost, options.out))
        else:
            Attendance(spec, options, watch).to_the_end()
    except Interrupted as interruption:
        return fail(PROGRAM, interruption, interruption.exit_code)
    except (ConfigError, Claimed, *FAULTS) as error:
        return fail(PROGRAM, error)
    except OSError as error:
        return fail(PROGRAM, classify(error).message)
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Run one training job.")
    parser.add_argument("--spec", required=True, help="a JSON file, or a mapping as Python literal")
    parser.add_argument("--data", type=Path, required=True, help="the dataset's manifest.json")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--source-digest", default="", help="digest of the measured code")
    parser.add_argument("--attempt", type=int, default=1, help="which try this is, from 1")
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint there is")
    parser.add_argument(
        "--try",
        dest="try_",
        type=int,
        help="Snakemake's count of its tries, from 1: a fault of the machine is an outcome in the "
        "last of them",
    )
    parser.add_argument(
        "--keep-weights",
        action="store_true",
        default=bool(os.environ.get(variables.KEEP_WEIGHTS)),
        help="save the model of repeat 1 at the end, even where the protocol does not",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


def read_spec(text: str) -> RunSpec:
    """The spec from a JSON file, or from a mapping as text. Raises ConfigError."""
    with contextlib.suppress(OSError):  # a text may be too long for a file's name
        if Path(text).is_file():
            try:
                value = json.loads(Path(text).read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"{text}: not JSON ({error})") from None
            return convert(value, RunSpec, text)
    return convert_text(text, RunSpec, "--spec")


def check_protocol(spec: RunSpec) -> None:
    """Raise ConfigError where no step is left to measure, or ranks have no launcher."""
    protocol = spec.protocol
    if protocol.steps <= protocol.warmup_steps:
        raise ConfigError(
            f"protocol.steps: {protocol.steps} leaves no step to measure after "
            f"protocol.warmup_steps: {protocol.warmup_steps}"
        )
    if spec.count > 1 and spec.launcher == "single":
        raise ConfigError(f"launcher: single starts one process, and count is {spec.count}")


def read_cause(file: str, out: Path) -> str:
    """The cause that a file of lost runs gives for the outcome in `out`. Raises ConfigError."""
    try:
        causes = json.loads(Path(file).read_text(encoding="utf-8"))
        found = {Path(path).resolve(): str(cause) for path, cause in causes.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{variables.LOST}: {file} is no JSON object of causes ({error})"
        ) from None
    outcome = out / OUTCOME_NAME
    if outcome.resolve() not in found:
        raise ConfigError(
            f"{variables.LOST}: {file} gives no cause for {outcome}; nothing is trained"
        )
    return found[outcome.resolve()]


if __name__ == "__main__":
    sys.exit(main())
