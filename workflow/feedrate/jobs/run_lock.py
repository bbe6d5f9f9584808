"""One job at a time trains a run, on whatever host: the claim on a run's folder.

A claim is a file `.claim-<number>` that O_EXCL makes, in one step on every shared file system. The
highest number counts, and numbers only grow. Who finds its holder dead makes the next number; of
several that do, one succeeds. A holder taken for dead by mistake finds a higher number than its
own, and puts no result in place. So no lock must hold between hosts, and no two clocks need agree.
"""

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from feedrate.config.values import Strict
from feedrate.core import slurm, variables
from feedrate.core.files import canonical_json

# The process that holds a claim: what it makes, where it is, and whether it lives.

PROC = Path("/proc")


class Identity(Strict, frozen=True, kw_only=True):
    """What a job makes: jobs of one identity would make the same result."""

    spec: str
    source: str
    data: str
    attempt: int

    def serves(self, wanted: "Identity") -> bool:
        """Whether a result of this identity is what `wanted` asks for.

        A plan counts attempts by the outcome that it finds, and begins anew where there is none:
        so a later attempt serves, and one that the plan has turned down does not.
        """
        same = (self.spec, self.source, self.data) == (wanted.spec, wanted.source, wanted.data)
        return same and self.attempt >= wanted.attempt


class Holder(Strict, frozen=True, kw_only=True):
    """The process that holds a claim, and for what."""

    identity: Identity
    token: str
    host: str
    space: str
    """Boot and process namespace: within one, process numbers can be compared."""
    pid: int
    started: int | None
    """When the process started, in the kernel's ticks: with the number, it is that process."""
    job: str
    """Slurm's number of the job; empty elsewhere."""
    since: str
    """When the job's driver began; its own word for itself."""

    def __str__(self) -> str:
        job = f", Slurm job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}"


def this_process(identity: Identity) -> Holder:
    """This process as a holder of claims."""
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


def lives(holder: Holder) -> bool:
    """Whether a holder in this process space is alive."""
    started = start_ticks(holder.pid)
    return started is not None and started == holder.started


def process_space(proc: Path = PROC) -> str:
    """The kernel's boot and the process namespace that this process lives in."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {(proc / 'self/ns/pid').readlink()}"


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When a process started, in ticks since the boot; None where it has ended (proc(5))."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


BEAT_S = 2.0
"""From one sign of life to the next; a job that stops its processes may miss some."""

_NAME = ".claim-"
_NOTE_WIDTH = 40
_ENDED = "ended"


class LostClaim(Exception):
    """Another job has taken the run over; `token` is its own, where that could be read."""

    def __init__(self, run: Path) -> None:
        other = newest(run)
        holder = other.holder if other else None
        super().__init__(f"another job{f' ({holder})' if holder else ''} has taken over {run}")
        self.token = holder.token if holder else ""


class Sight(Strict, frozen=True, kw_only=True):
    """A claim as another job sees it. `holder` is None where the file is torn."""

    number: int
    text: str
    holder: Holder | None = None
    note: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether its holder took leave."""
        return self.note.startswith(_ENDED)

    @property
    def ending(self) -> list[str]:
        """The words that its holder left on taking leave."""
        return self.note.split()[1:] if self.has_ended else []


class Claim:
    """This job's claim on a run; a context whose end takes leave of it."""

    def __init__(self, run: Path, number: int, holder: Holder) -> None:
        self.run, self.number, self.holder = run, number, holder
        self.ending = ""
        """A word or two for the next try, on why this one ends."""
        self._head = canonical_json(msgspec.to_builtins(holder)) + "\n"
        self._beats, self._due_s = 0, time.monotonic() + BEAT_S

    @property
    def path(self) -> Path:
        """The claim's file."""
        return self.run / f"{_NAME}{self.number}"

    def beat(self) -> None:
        """Give a sign of life where one is due. Raises LostClaim where another has taken over."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + BEAT_S
        self._beats += 1
        self._write(f"alive {self._beats}")
        self._check()

    def renew(self) -> None:
        """Make sure of the claim in one step, before results are put in place: take it anew.

        Raises LostClaim where another was faster.
        """
        self.number += 1
        if not self._make():
            raise LostClaim(self.run)
        self._check()

    def leave(self) -> None:
        """Tell others that they need not wait, and the next try what `ending` says."""
        self._write(f"{_ENDED} {self.ending}")

    def clear(self) -> None:
        """Forget the claims before this one."""
        for number in _numbers(self.run):
            if number < self.number:
                (self.run / f"{_NAME}{number}").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if not isinstance(error, LostClaim):
            self.leave()

    def _make(self) -> bool:
        """Make the file; False where another job has made it."""
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

    def _write(self, note: str) -> None:
        """Change the note in place. A failure is made up for by the next beat."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                os.pwrite(descriptor, _line(note).encode(), len(self._head.encode()))
            finally:
                os.close(descriptor)  # on a network file system others see it from here on

    def _check(self) -> None:
        if max(_numbers(self.run), default=0) != self.number:
            raise LostClaim(self.run)


def claim_next(run: Path, holder: Holder, after: int) -> Claim | None:
    """The claim that follows number `after`; None where another job was faster."""
    claim = Claim(run, after + 1, holder)
    if not claim._make():
        return None
    if max(_numbers(run)) != claim.number:  # the folder was listed late
        claim.path.unlink()
        return None
    return claim


def seize(run: Path, holder: Holder) -> Claim:
    """The claim, be it held or not: who held it puts no result in place any more."""
    while True:
        if claim := claim_next(run, holder, max(_numbers(run), default=0)):
            return claim


def newest(run: Path) -> Sight | None:
    """The claim that counts, whether its holder lives or not; None where there never was one."""
    return next(iter(history(run)), None)


def history(run: Path) -> Iterator[Sight]:
    """The claims on a run, newest first."""
    for number in sorted(_numbers(run), reverse=True):
        try:
            text = (run / f"{_NAME}{number}").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = ""
        head, _, note = text.partition("\n")
        try:
            holder = msgspec.json.decode(head, type=Holder)
        except (msgspec.DecodeError, msgspec.ValidationError):
            yield Sight(number=number, text=text)
        else:
            yield Sight(number=number, text=text, holder=holder, note=note.strip())


def _line(note: str) -> str:
    return f"{note:<{_NOTE_WIDTH}.{_NOTE_WIDTH}}\n"


def _numbers(run: Path) -> list[int]:
    found = (path.name.removeprefix(_NAME) for path in run.glob(f"{_NAME}*"))
    return [int(number) for number in found if number.isdigit()]
