"""Why a job failed, in one sentence, from what it printed."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

Kind = Literal["out_of_memory", "infrastructure", "failure"]
"""Out of memory is a result; a fault of the machine is worth another try; the rest is neither."""

MAX_CHARS = 300


class Cause(NamedTuple):
    """A cause: what kind it is, and one sentence."""

    kind: Kind
    sentence: str


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    kind: Kind
    sentence: Callable[[re.Match[str]], str]


def _rule(pattern: str, kind: Kind, sentence: str | Callable[[re.Match[str]], str]) -> _Rule:
    say = sentence if callable(sentence) else lambda _: sentence
    return _Rule(re.compile(pattern, re.IGNORECASE | re.MULTILINE), kind, say)


def _size(text: str) -> str:
    gib = int(text) / 2**30
    return f"{gib:.2f} GiB" if gib >= 0.01 else f"{int(text)} bytes"


_RULES = (
    # Memory first: a rank that runs out of it makes the others report a broken connection.
    _rule(
        r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): "
        r"you tried to allocate (\d{1,18}) bytes",
        "out_of_memory",
        lambda m: f"The host ran out of memory: {_size(m[1])} could not be allocated.",
    ),
    _rule(
        r"(?:CUDA|HIP|XPU)?\s?out of memory\. Tried to allocate ([\d.]{1,12} ?[KMGT]i?B)",
        "out_of_memory",
        lambda m: f"The device ran out of memory: {m[1]} could not be allocated.",
    ),
    _rule(
        r"PT_DEVMEM Allocation failed for size::\s?(\d{1,18})",
        "out_of_memory",
        lambda m: f"The HPU ran out of memory: {_size(m[1])} could not be allocated.",
    ),
    _rule(
        r"CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|"
        r"torch\.(?:cuda\.)?OutOfMemoryError|synOutOfDeviceMemory|out of device memory",
        "out_of_memory",
        "The device ran out of memory.",
    ),
    _rule(
        r"oom[-_ ]kill|Out of memory: Killed process|Exceeded job memory limit",
        "out_of_memory",
        "The operating system killed the job because the host's memory ran out.",
    ),
    _rule(
        r"^(?:\w+\.)*MemoryError\b|Cannot allocate memory|\[Errno 12\]",
        "out_of_memory",
        "The host ran out of memory.",
    ),
    _rule(
        r"No space left on device|\[Errno 28\]",
        "failure",
        "The disk is full (no space left on device).",
    ),
    _rule(r"Disk quota exceeded|\[Errno 122\]", "failure", "The disk quota is used up."),
    _rule(
        r"bus error.{0,80}shared memory|insufficient shared memory|unable to (?:open|mmap|"
        r"write to) (?:shared memory|file </torch)",
        "failure",
        "A data-loader worker ran out of shared memory (/dev/shm is too small).",
    ),
    _rule(
        r"DataLoader worker \(pid\(?s?\)? ([\d, ]{1,80})\) (?:is killed by signal: (\w{1,20})|"
        r"exited unexpectedly)",
        "failure",
        lambda m: (
            f"A data-loader worker was killed (signal {m[2]})."
            if m[2]
            else "A data-loader worker exited unexpectedly."
        ),
    ),
    _rule(
        r"No module named '?([\w.]{1,80})'?",
        "failure",
        lambda m: f"The module {m[1]} is not installed in the job's interpreter.",
    ),
    _rule(
        r"DUE TO (TIME LIMIT|PREEMPTION|NODE FAILURE)",
        "infrastructure",
        lambda m: f"The cluster cancelled the job ({m[1].lower()}).",
    ),
    _rule(
        r"No CUDA GPUs are available|CUDA driver version is insufficient|NVIDIA-SMI has failed|"
        r"Found no NVIDIA driver|no CUDA-capable device",
        "infrastructure",
        "The job found no usable CUDA device.",
    ),
    _rule(
        r"syn(?:Device)?Acquire\w{0,30}.{0,60}fail|Device acquire failed|"
        r"synDeviceAlreadyAcquired|No HPU devices? (?:is|are)? ?available",
        "infrastructure",
        "The job could not acquire an HPU.",
    ),
    _rule(
        r"fallen off the bus|uncorrectable ECC|\bXid\b.{0,20}\b(?:48|63|64|74|79|94|95)\b|"
        r"synDeviceReset|device lost",
        "infrastructure",
        "The device was lost.",
    ),
    _rule(r"Too many open files|\[Errno 24\]", "failure", "Too many files were open at once."),
    _rule(
        r"OfflineModeIsEnabled|LocalEntryNotFoundError|couldn't connect to '?https?:|"
        r"Cannot reach https?:|Name or service not known|Temporary failure in name resolution",
        "failure",
        "Something had to be fetched from the network, which could not be reached.",
    ),
)

_LINK_RULES = (
    # What the other ranks say when one has ended: the cause only where nobody gives a better one.
    _rule(
        r"Watchdog caught collective operation timeout|Timed out waiting \d{1,12}\s?ms for (?:recv|"
        r"send)",
        "infrastructure",
        "A collective operation between the ranks timed out.",
    ),
    _rule(
        r"\bnccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError|InvalidUsage)\b|"
        r"NCCL error|NCCL WARN .{0,40}(?:fail|error)",
        "infrastructure",
        "NCCL, which connects the ranks, failed.",
    ),
    _rule(
        r"\bhccl\w{0,40}.{0,60}(?:fail|error|timeout)",
        "infrastructure",
        "HCCL, which connects the ranks, failed.",
    ),
    _rule(
        r"address already in use|EADDRINUSE|\[Errno 98\]",
        "infrastructure",
        "The port for the ranks' rendezvous is already in use.",
    ),
    _rule(
        r"gloo.{0,200}(?:closed by peer|reset by peer|refused|timed? ?out|fail)|"
        r"Connection (?:closed|reset) by peer",
        "infrastructure",
        "The connection between the ranks broke; one of them ended early.",
    ),
    _rule(
        r"got signal: (\d{1,2})\b",
        "failure",
        lambda m: f"The job was stopped from outside (signal {m[1]}).",
    ),
)
"""Faults between the ranks, and of their launcher."""

_EXCEPTION = re.compile(
    r"^(?:\[[^\]\n]{1,40}\]:? ?)?((?:\w{1,80}\.){0,8}\w{0,80}(?:Error|Exception|Interrupt|Exit))"
    r":?[ \t]*(.{0,400})$",
    re.MULTILINE,
)
_LAUNCHER = ("ChildFailedError", "CalledProcessError", "SignalException")
_SECRET = re.compile(r"\b(?:hf|gh[pousr])_[A-Za-z0-9]{16,}")
_PART_CHARS = 65_536
"""What follows the first traceback is searched to this length, and so is the log's end."""


def find_cause(log: str) -> Cause | None:
    """The cause that `log` names, or None where nothing in it looks like one.

    Known causes go before the last exception, memory before all others. Only what follows the
    first traceback, or else the log's end, is searched: an early warning is no cause.
    """
    raised = log.find("Traceback (most recent call last)")
    log = log[raised:] if raised >= 0 else log[-_PART_CHARS:]
    if len(log) > 2 * _PART_CHARS:
        log = f"{log[:_PART_CHARS]}\n{log[-_PART_CHARS:]}"
    return _first(_RULES, log) or _last_exception(log) or _first(_LINK_RULES, log)


def _first(rules: tuple[_Rule, ...], log: str) -> Cause | None:
    for rule in rules:
        found = rule.pattern.search(log)
        if found:
            return Cause(rule.kind, rule.sentence(found))
    return None


def _last_exception(log: str) -> Cause | None:
    """The last exception that is not merely news of another process's end."""
    for raised in reversed(list(_EXCEPTION.finditer(log))):
        name = raised[1].rsplit(".", 1)[-1]
        if name in _LAUNCHER or any(rule.pattern.search(raised[0]) for rule in _LINK_RULES):
            continue
        return Cause("failure", one_line(f"{name}: {raised[2].strip()}".rstrip(".: ") + "."))
    return None


def explain(log: str) -> str:
    """One sentence on why a job failed, whatever its log holds."""
    cause = find_cause(log)
    if cause:
        return cause.sentence
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return "The job ended without a word in its log."
    return one_line(f"No cause in the log; it ends with: {lines[-1]}")


def one_line(text: str) -> str:
    """`text` on one line, at most MAX_CHARS long, without access tokens."""
    text = _SECRET.sub("(token)", " ".join(text.split()))
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
