"""Why a job ended, from the text that it printed and nothing else.

Only a line that begins like an error counts, so a quoted error is none. Final figures of the
training outweigh every error after them, and progress after an error shows that it was handled.
"""

import math
import re
import signal
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from feedrate.jobs.worker import DISK_FULL, OUT_OF_MEMORY

CauseName = Literal[
    "success",
    "time limit",
    "preempted",
    "node failure",
    "device out of memory",
    "host out of memory",
    "disk full",
    "bad token",
    "import error",
    "missing file",
    "NaN or zero loss",
    "collective timeout",
    "cancelled",
    "other error",
    "unknown",
]
"""In order of precedence: an earlier cause explains a later one."""

NODE_FAILURE = re.compile(
    r"srun: error: (?:Node failure|Unable to (?:create|confirm))"
    r"|(?:slurmstepd|srun): error: .* DUE TO NODE FAILURE|^Batch job submission failed: Node fail"
)
KILLED_LOADER = re.compile(r"DataLoader worker.*killed by signal: Killed")
_TORCHRUN = re.compile(r"rank\s*:\s*(\d+) .*\n.*exitcode\s*:\s*(-?\d+)")
_MPIRUN = re.compile(r"process rank (\d+) .* exited on signal (\d+)")
_KILLED_WORD = "Killed|Getötet|Tué|Matado|Terminado \\(killed\\)|Убито|已杀死|強制終了"

_LINE = "(?:line|Zeile|ligne|línea|linha|строка|行) ?\\d+"
"""How shells name a line of a script."""

_PREFIX = re.compile(
    r"^(?:\[?(?:default|rank)?\d+\]?:\s?|\[\d+,\d+\]<std(?:err|out)>:\s?|\([^()]{1,60}pid=\d+[^()]{0,60}\)\s?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*\s+|\[\d{4}-\d\d-\d\d[^\]]{1,40}\]\s*"
    r"|\[?(?:ERROR|CRITICAL)\]?[ :|-]+|E \d{4}[^\]]{1,60}\]\s?|std(?:err|out): )+"
)
"""The prefixes that launchers, loggers and schedulers put before a line."""
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exceeded|Exit|Failure)(?::|$)"
    r"|terminate called after throwing"
)
_ERRORS: dict[CauseName, str] = {
    "time limit": r"DUE TO TIME LIMIT|PBS: job killed: walltime|TERM_RUNLIMIT",
    "preempted": r"DUE TO PREEMPTION|TERM_PREEMPT|^Job was preempted",
    "node failure": NODE_FAILURE.pattern,
    "device out of memory": r"(?:CUDA|HIP|XPU|MPS|HPU)\b.{0,40}out of memory|cudaMalloc\w* failed"
    r"|Cuda failure.*out of memory|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED"
    r"|PT_DEVMEM\s+(?:Allocation failed|OOM\b)|workspace Allocation of size ::\d+ failed"
    r"|torch\.(?:cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory"
    r"|[Dd]evice memory.*(?:exhausted|allocation failed)",
    "host out of memory": r"oom[-_]kill|[Oo]ut of memory: Kill|Memory cgroup out of memory"
    r"|cgroup out-of-memory|^srun: error: .*(?:Out Of Memory|oom)|OUT_OF_MEMORY \(|TERM_MEMLIMIT"
    r"|[Cc]an(?:no|')t allocate memory|std::bad_alloc|^MemoryError|ArrayMemoryError"
    rf"|^(?:{_KILLED_WORD})$|{_LINE}:\s+\d+ (?:{_KILLED_WORD})\b|{KILLED_LOADER.pattern}"
    r"|exitcode\s*: -9\b|received signal 9\b|Signal 9 \(SIGKILL\) received|exited on signal 9\b"
    r"|^[Ee]xit code:? 137\b|^srun: error: .*: (?:Killed|Exited with exit code 137)",
    "disk full": rf"(?i:{DISK_FULL.pattern}|kein Speicherplatz mehr|aucun espace disponible)"
    r"|No queda espacio en el dispositivo|设备上没有空间|Errno (?:28|122)\b",
    "bad token": r"(?i:40[13] Client Error|GatedRepoError|Invalid (?:user )?token|gated repo"
    r"|Invalid username or pass|LocalTokenNotFoundError|Token is required|AuthenticationError"
    r"|api[_ ]key not configured|Invalid credentials|Unauthorized for url)",
    "import error": r"(?:Import|ModuleNotFound)Error|No module named|undefined symbol"
    r"|error while loading shared libraries|cannot import name",
    "missing file": r"FileNotFoundError|No such file or directory|NotADirectoryError"
    r"|does not appear to have a file|Can't load (?:tokenizer|the (?:model|configuration|weights))"
    r"|(?:Dataset|Entry|LocalEntry|Repository|Revision)NotFoundError|Datei oder Verzeichnis"
    r"|Aucun fichier ou dossier|No existe el (?:archivo|fichero)|没有那个文件或目录",
    "NaN or zero loss": r"(?i:loss (?:is|became) (?:nan|inf|zero|0\b)|returned nan values)",
    "collective timeout": r"collective operation timeout|NCCL watchdog|watchdog got stuck"
    r"|NCCL operations have failed or timed out|DistStoreError|Timed out waiting \d+ms|WorkNCCL\("
    r"|Socket Timeout|(?i:hcc?l|gloo|rendezvous|c10d).{0,80}[Tt]ime(?:d ?)?out",
    "cancelled": r"KeyboardInterrupt|CANCELLED AT|TERM_OWNER|JOB \d+ .*CANCELLED|^\^C",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _ERRORS.items()}
_SCHEDULER = re.compile(
    r"^(?:slurmstepd|srun|sbatch|PBS|LSF|TERM_\w+|Job was|=>> )|^\*\*\* (?:JOB|STEP)"
    r"|^\[?[ \d.]*\]?\s?(?:\S+ kernel: .*)?(?:Out of memory|Memory cgroup|oom-kill|oom_reaper)"
    r"|^\w{3} +\d+ [\d:]{8} \S+ kernel:"
)
"""Lines of schedulers and of the kernel, which begin with no exception."""
_BARE = re.compile(
    rf"^(?:{_KILLED_WORD})$|^\S+: {_LINE} ?:"
    r"|^(?:CUDA|HIP) (?:out of memory\.|error: out of memory)|^\^C$|^(?:mpi|prte)run noticed"
    r"|^FATAL ERROR :: |^\s+exitcode\s*: -9\b|^(?:Exit|exit) code:? 137\b"
    r"|^\[(?:rank|Rank )\s?\d+\].{0,60}(?:[Ww]atchdog|NCCL)|^\[?E\d{0,4}.{0,80}ProcessGroupNCCL"
    r"|^\S*(?:cp|mv|tar|cat|ls|python3?|rsync|wget|curl): |^wandb: ERROR |^\S+: error while loading"
    r"|^NCCL (?:WARN|error)|^\S+:\d+:\d+ \[\d+\] .*NCCL WARN|^synapse|^\[enforce fail at "
)
"""Other lines that report a failure without an exception's name."""
_FINAL = re.compile(r"['\"]train_runtime['\"]:|^\s*train_runtime\s*=")
_COMPLETED = re.compile(
    r"^(?:Training (?:is |has )?(?:been )?(?:complete|completed|finished|done)\b(?! with errors)"
    r"|Job completed successfully|Process exited with code 0\b|Exit code: 0$|\d+ +COMPLETED +0:0)",
    re.IGNORECASE,
)
_LOSS = re.compile(r"\{'(?:train_)?loss': '?([-+.\w]+)")
_TRAIN_LOSS = re.compile(r"['\"]train_loss['\"]: ['\"]?([-+.\w]+)|^\s*train_loss\s*=\s*(\S+)")
_GRADIENT = re.compile(r"'grad_norm': '?([-+.\w]+)")
_BAR = re.compile(r"(\d+)/\d+ \[\d+:\d\d[^\]]{0,80}\]?")
_HANDLED_AFTER = 2
"""Steps that the progress bar moves on after an error that did not end the job."""


class Cause(NamedTuple):
    """Why a job ended, and the line that says so."""

    name: CauseName
    line: str = ""


class CauseReader:
    """Reads a log line by line; `cause` says why its job ended. Memory does not grow."""

    def __init__(self) -> None:
        self._found: dict[CauseName, str] = {}
        self._finished = self._bad_end = ""
        self._bad_loss = ""
        self._step = self._moved = 0

    def feed(self, line: str) -> None:
        """Take the next line, without its end."""
        if "%|" in line and (bar := _BAR.search(line)):
            self._follow_progress(int(bar[1]))
            line = line[bar.end() :]  # what follows a bar begins no line of its own
        if not line:
            return
        if "loss'" in line or "train_loss" in line:
            self._follow_loss(line)
        if self._finished:
            return
        if _FINAL.search(line) or _COMPLETED.match(line):
            self._finished = line
        elif name := _error_of(line):
            self._moved = 0
            self._found.setdefault(name, line)

    def cause(self) -> Cause:
        """The cause by all lines so far."""
        if self._bad_end:
            return Cause("NaN or zero loss", self._bad_end)
        if self._finished:
            return Cause("success", self._finished)
        found = dict(self._found)
        if self._bad_loss:
            found.setdefault("NaN or zero loss", self._bad_loss)
        for name in get_args(CauseName):
            if name in found:
                return Cause(name, found[name])
        return Cause("unknown")

    def _follow_progress(self, step: int) -> None:
        """Forget errors after which the bar went on."""
        self._moved += step > self._step > 0
        self._step = step
        if self._found and self._moved >= _HANDLED_AFTER:
            self._found.clear()

    def _follow_loss(self, line: str) -> None:
        if found := _TRAIN_LOSS.search(line):
            self._bad_end = line if _is_bad(_number(found[1] or found[2])) else ""
        elif found := _LOSS.search(line):
            value, gradient = _number(found[1]), _GRADIENT.search(line)
            norm = (_number(gradient[1]) if gradient else None) or 0.0
            # A converged model's loss may round to 0; its gradients are still above 0.
            converged = value == 0 and 0 < norm < math.inf
            self._bad_loss = line if _is_bad(value) and not converged else ""


def cause_of(lines: Iterable[str]) -> Cause:
    """Why the job that printed these lines ended."""
    reader = CauseReader()
    for line in lines:
        reader.feed(line)
    return reader.cause()


def killed_rank(text: str) -> tuple[int, int] | None:
    """Rank and signal, if the end of a launcher's output says that a signal ended the job.

    torchrun lists the first failure last. A rank that lost its peer may end before that peer is
    seen to be dead; the ranks that torchrun itself stops get SIGTERM.
    """
    if found := _MPIRUN.search(text):
        return int(found[1]), int(found[2])
    others, _, first = text.rpartition("Root Cause")
    root, rest = (
        [(int(rank), -int(code)) for rank, code in _TORCHRUN.findall(part) if int(code) < 0]
        for part in (first, others)
    )
    return next(iter(root + [one for one in rest if one[1] != signal.SIGTERM]), None)


def _error_of(line: str) -> CauseName | None:
    """The failure that a line reports; None if it reports none, or only quotes one."""
    bare = _PREFIX.sub("", line)
    named = _EXCEPTION.match(bare)
    if not (named or any(p.search(one) for p in (_SCHEDULER, _BARE) for one in (bare, line))):
        return None
    for name, pattern in _PATTERNS.items():
        if pattern.search(bare) or (bare != line and pattern.search(line)):
            return name
    if OUT_OF_MEMORY.search(bare):
        return "device out of memory"
    return "other error" if named else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _is_bad(loss: float | None) -> bool:
    return loss is not None and (not math.isfinite(loss) or loss == 0)
