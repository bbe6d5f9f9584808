"""The lock of a run: one job at a time works on it, across all hosts.

The lock is a file `.claim-<number>` in the run's folder, made with O_EXCL, which is atomic on every
shared file system. The highest number counts: a job that finds the holder dead makes the next, and
a holder that was mistaken for dead then publishes nothing. So the lock needs neither file locks
between hosts nor clocks that agree.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psutil

from feedrate.config.values import Strict
from feedrate.core import slurm, variables
from feedrate.core.errors import ExpectedError
from feedrate.core.files import canonical_json
from feedrate.core.processes import is_alive

HEARTBEAT_S = 2.0
"""Time between heartbeats; a job that is stopping its processes may miss some."""
POLL_S = 0.5
STALE_S = 90.0
"""A holder is dead if its lock has not changed for this long, by the watcher's own clock. Network
file systems show a change up to a minute late (nfs(5), acregmax)."""
QUIET_S = 15.0
"""The same, if Slurm says that its job is over. That is not enough by itself: on a node that Slurm
has lost, the processes may still run."""

_NAME = ".claim-"
_NOTE_WIDTH = 40
_RELEASED = "ended"


class Identity(Strict, frozen=True, kw_only=True):
    """The digests of a job's input: jobs of one identity would make the same result."""

    spec: str
    source: str
    data: str
    inputs: str = ""
    """That of `earlier.inputs_digest`."""
    attempt: int

    def serves(self, wanted: "Identity") -> bool:
        """Whether a result of this identity is the one that `wanted` asks for. A plan without an
        outcome starts again at attempt 1: a later attempt serves, a rejected one does not."""
        same = msgspec.structs.replace(self, attempt=wanted.attempt) == wanted
        return same and self.attempt >= wanted.attempt


class Holder(Strict, frozen=True, kw_only=True):
    """The process that holds a lock, and the identity of the result that it makes."""

    identity: Identity
    token: str
    host: str
    space: str
    """Boot and PID namespace: within one, process numbers can be compared."""
    pid: int
    started: int | None
    """Start of the process in clock ticks since boot: a reused number has another start."""
    job: str
    """Number of the Slurm job; empty elsewhere."""
    since: str
    """Start of the job's driver by the driver's own clock, as passed to the job."""

    @property
    def is_running(self) -> bool:
        """Whether the process lives; asked only in its own `space`."""
        return self.started is not None and self.started == start_ticks(self.pid)

    def __str__(self) -> str:
        job = f", Slurm job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"


def this_holder(identity: Identity) -> Holder:
    """This process as a holder of locks."""
    return Holder(
        identity=identity,
        token=secrets.token_hex(4),
        host=socket.gethostname(),
        space=process_space(),
        pid=os.getpid(),
        started=start_ticks(os.getpid()),
        job=os.environ.get(slurm.JOB_ID, ""),
        since=os.environ.get(variables.DRIVER_SINCE, ""),
    )


def process_space() -> str:
    """The kernel's boot and the PID namespace of this process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def start_ticks(pid: int) -> int | None:
    """Start of a process in ticks since boot, which no clock change moves; None if it has ended."""
    try:
        process = psutil.Process(pid)
        since_boot_s = process.create_time() - psutil.boot_time()
        alive = is_alive(process)
    except psutil.NoSuchProcess:
        return None
    return round(since_boot_s * os.sysconf("SC_CLK_TCK")) if alive else None


class LockEntry(Strict, frozen=True, kw_only=True):
    """A lock as other jobs read it. `holder` is None if the file is torn."""

    number: int
    text: str
    holder: Holder | None = None
    note: str = ""

    @property
    def is_released(self) -> bool:
        """Whether its holder released it."""
        return self.note.startswith(_RELEASED)

    @property
    def reason(self) -> list[str]:
        """The words that its holder left when it released the lock."""
        return self.note.split()[1:] if self.is_released else []


class RunConflict(ExpectedError):
    """A living job makes another result in the same folder."""


class LostLock(Exception):
    """Another job has taken over the run; `token` is that job's, empty if it could not be read."""

    def __init__(self, run: Path) -> None:
        other = newest(run)
        holder = other.holder if other else None
        super().__init__(f"another job{f' ({holder})' if holder else ''} has taken over {run}")
        self.token = holder.token if holder else ""


class RunLock:
    """The lock that this job holds; a context that releases it at its end."""

    def __init__(self, run: Path, number: int, holder: Holder) -> None:
        self.run, self.number = run, number
        self.reason = ""
        """Why this try ends, in a word or two for the next try."""
        self._head = canonical_json(msgspec.to_builtins(holder)) + "\n"
        self._beats, self._due_s = 0, time.monotonic() + HEARTBEAT_S

    @property
    def path(self) -> Path:
        """The lock's file."""
        return self.run / f"{_NAME}{self.number}"

    def create(self) -> bool:
        """Make the file; False if another job has made it."""
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            os.write(descriptor, (self._head + _line("alive 0")).encode())
        except OSError:  # the disk is full
            self.path.unlink()
            raise
        finally:
            os.close(descriptor)
        return True

    def heartbeat(self) -> None:
        """Change the file if that is due. Raises LostLock if another job has taken over."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + HEARTBEAT_S
        self._beats += 1
        self._write_note(f"alive {self._beats}")
        self._check()

    def renew(self) -> None:
        """Take the lock again, in one step, before results are published. Raises LostLock."""
        self.number += 1
        if not self.create():
            raise LostLock(self.run)
        self._check()

    def release(self) -> None:
        """Let other jobs stop waiting, and leave `reason` to the next try."""
        self._write_note(f"{_RELEASED} {self.reason}")

    def remove_older(self) -> None:
        """Remove the locks before this one."""
        for number in _numbers(self.run):
            if number < self.number:
                (self.run / f"{_NAME}{number}").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not isinstance(error, LostLock):
            self.release()

    def _write_note(self, note: str) -> None:
        """Change the note in place. The next heartbeat makes up for a failure."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(descriptor, _line(note).encode(), len(self._head.encode()))
            finally:
                os.close(descriptor)  # a network file system shows it to others from here on

    def _check(self) -> None:
        if max(_numbers(self.run), default=0) != self.number:
            raise LostLock(self.run)


def try_lock(run: Path, holder: Holder, after: int) -> RunLock | None:
    """The lock that follows number `after`; None if another job was faster."""
    lock = RunLock(run, after + 1, holder)
    if not lock.create():
        return None
    if max(_numbers(run), default=0) != lock.number:  # the folder was listed late
        lock.path.unlink()
        return None
    return lock


def take_over(run: Path, holder: Holder) -> RunLock:
    """The lock, whether it is held or not; a former holder publishes nothing any more."""
    while not (lock := try_lock(run, holder, max(_numbers(run), default=0))):
        pass
    return lock


def newest(run: Path) -> LockEntry | None:
    """The lock that counts, whether its holder lives or not; None if there never was one."""
    return next(history(run), None)


def history(run: Path) -> Iterator[LockEntry]:
    """The locks of a run, newest first."""
    for number in sorted(_numbers(run), reverse=True):
        try:
            text = (run / f"{_NAME}{number}").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = ""
        head, _, note = text.partition("\n")
        try:
            holder = msgspec.json.decode(head, type=Holder)
        except msgspec.DecodeError:
            holder, note = None, ""
        yield LockEntry(number=number, text=text, holder=holder, note=note.strip())


def _line(note: str) -> str:
    return f"{note:<{_NOTE_WIDTH}.{_NOTE_WIDTH}}\n"


def _numbers(run: Path) -> list[int]:
    found = (path.name.removeprefix(_NAME) for path in run.glob(f"{_NAME}*"))
    return [int(number) for number in found if number.isdigit()]


def acquire(
    run: Path, me: Holder, check: Callable[[], None], report: Callable[[str], None]
) -> tuple[RunLock, set[str]]:
    """The lock of `run`, and the tokens of the holders that were alive during the wait for it. At
    every look it calls `check`, which may raise an error to give up. Raises RunConflict if a living
    holder makes something else."""
    watch, seen, reported = HolderWatch(me), set[str](), False
    while True:
        entry = newest(run)
        if entry is None or (alive := watch.is_alive(entry)) is False:
            if lock := try_lock(run, me, entry.number if entry else 0):
                return lock, seen
            continue
        holder = entry.holder
        if alive and holder:
            if not holder.identity.serves(me.identity):
                raise RunConflict(
                    f"another job ({holder}) trains this run with other settings, code or data: "
                    "wait for it to end, or cancel the jobs that an earlier driver left: run "
                    "`python -m feedrate cancel`"
                )
            seen.add(holder.token)
        if holder and not reported:
            report(f"waiting for the result of another job of this run ({holder})")
            reported = True
        check()
        time.sleep(POLL_S)


class HolderWatch:
    """Finds out whether the holder of a lock lives, by watching the lock."""

    def __init__(self, me: Holder) -> None:
        self._me = me
        self._number, self._text = 0, ""
        self._changed = False
        self._since_s = self._ask_s = 0.0

    def is_alive(self, entry: LockEntry) -> bool | None:
        """Whether the holder in `entry` lives; None if that is not known yet."""
        if entry.is_released:
            return False
        now_s = time.monotonic()
        if (entry.number, entry.text) != (self._number, self._text):
            self._changed = entry.number == self._number
            self._number, self._text = entry.number, entry.text
            self._since_s, self._ask_s = now_s, now_s + QUIET_S
        holder = entry.holder
        if holder and holder.space == self._me.space:
            return holder.is_running
        if now_s - self._since_s >= STALE_S:
            return False
        if holder and now_s >= self._ask_s:
            self._ask_s = now_s + QUIET_S
            if self._job_is_over(holder):
                return False
        return self._changed or None

    def _job_is_over(self, holder: Holder) -> bool:
        """Whether Slurm says so. If Slurm restarted this very job, its first start is over."""
        if holder.job == self._me.job:
            return holder.job != ""
        job = slurm.find(holder.job)
        return job is not None and job.is_over
