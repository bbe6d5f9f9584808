"""The meaning of an exception: out of memory, a fault of the machine, or a fault of the cell."""

import errno
import re
from dataclasses import dataclass

from feedrate.data.manifest import DataError
from feedrate.devices.base import DeviceError

OUT_OF_MEMORY = re.compile(
    r"out of memory"  # torch.OutOfMemoryError of CUDA
    r"|can't allocate memory"  # DefaultCPUAllocator
    r"|CUBLAS_STATUS_ALLOC_FAILED"
    r"|PT_DEVMEM\s+Allocation failed"  # Gaudi
    r"|std::bad_alloc"
    r"|Cannot allocate memory",  # ENOMEM
    re.IGNORECASE,
)
SHARED_MEMORY_FULL = re.compile(
    r"unable to (?:allocate|resize|open|mmap|write to)\b.*?(?:shared memory|</torch)"
)
"""The kernel reports full shared memory as a device without space."""
DISK_FULL = re.compile(
    r"No space left on device|os error 28|Disk quota exceeded|os error 122", re.IGNORECASE
)
MACHINE_FAULT = re.compile(
    r"uncorrectable ECC error|fallen off the bus|devices? (is|are|is/are) busy or unavailable"
    r"|[Dd]evice acquire failed|synDeviceAcquire\w* failed"
)

_ALLOCATOR = re.compile(r"^\[enforce fail at [^\]]*\](?: \S+ == \S+)?\.? *")
"""The place in torch's code where the CPU's allocator gave up; the message follows it."""
_WORKER_TRACEBACK = re.compile(r"^Caught (\w+) in DataLoader worker")
_KILLED = re.compile(r"DataLoader worker .* is killed by signal: ([^.]+)\.")
_WORKER_GONE = re.compile(r"DataLoader worker (.*) exited unexpectedly")
_LOADER_MESSAGES = (
    (
        re.compile(r"DataLoader worker .* is killed by signal: (Bus error)\."),
        "a loader worker was killed (signal: {}): the host's shared memory, /dev/shm, is full; "
        "give the container more (docker: --shm-size)",
    ),
    (
        _KILLED,
        "a loader worker was killed (signal: {}); often the host had no memory left for it",
    ),
    (
        _WORKER_GONE,
        "a loader worker {} exited without an error; often the host had no memory left for it",
    ),
    (
        re.compile(r"DataLoader timed out after ([\d.]+) seconds"),
        "a loader worker hangs: it made no batch within {} s (loader.timeout_s)",
    ),
)
"""Messages of torch's loader about its workers, and ours in their place."""
_LONGEST = 400


@dataclass(frozen=True)
class Failure:
    """An exception as events and outcomes report it."""

    type: str
    message: str
    out_of_memory: bool = False
    infrastructure: bool = False
    """The fault of the machine, not of the cell: another try may succeed."""


def classify(error: BaseException) -> Failure:
    """Classify an exception by its type and message."""
    text = f"{error}"
    if _WORKER_GONE.match(text) and _KILLED.match(cause := f"{error.__cause__}"):
        text = cause  # torch names the signal only in the exception's cause
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    shared_full = bool(SHARED_MEMORY_FULL.search(text))
    disk_full = not shared_full and (full or bool(DISK_FULL.search(text)))
    place = "the host's shared memory, /dev/shm, is too small: " * shared_full
    place += "the disk is full: " * disk_full
    return Failure(
        type=type(error).__name__,
        message=f"{place}{first_sentence(text)}",
        out_of_memory=not disk_full
        and (
            isinstance(error, MemoryError)
            or any(base.__name__ == "OutOfMemoryError" for base in type(error).__mro__)
            or bool(OUT_OF_MEMORY.search(text))
        ),
        infrastructure=disk_full
        or isinstance(error, DeviceError | DataError)
        or bool(MACHINE_FAULT.search(text)),
    )


def first_sentence(text: str) -> str:
    """The line of a message that says what happened, cut to a readable length.

    The exception of a data-loader worker carries a traceback, whose last line counts.
    """
    for pattern, sentence in _LOADER_MESSAGES:
        if found := pattern.match(text):
            return sentence.format(found[1])
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    in_worker = _WORKER_TRACEBACK.match(lines[0])
    line = lines[-1] if in_worker else _ALLOCATOR.sub("", lines[0])
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
