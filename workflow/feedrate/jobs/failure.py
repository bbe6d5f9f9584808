"""What an exception means: out of memory, a fault of the machine, or the cell's own."""

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
_ALLOCATOR = re.compile(r"^\[enforce fail at [^\]]*\](?: \S+ == \S+)?\.? *")
"""Where in torch's code the CPU's allocator gave up; what it wanted comes after."""
SHARED_MEMORY_FULL = re.compile(
    r"unable to (?:allocate|resize|open|mmap|write to)\b.*?(?:shared memory|</torch)"
)
"""Memory that processes share; the kernel calls it a device without space."""
DISK_FULL = re.compile(
    r"No space left on device|os error 28|Disk quota exceeded|os error 122", re.IGNORECASE
)
MACHINE_FAULT = re.compile(
    r"uncorrectable ECC error|fallen off the bus|devices? (is|are|is/are) busy or unavailable"
    r"|[Dd]evice acquire failed|synDeviceAcquire\w* failed"
)
_LOADER = re.compile(r"^Caught (\w+) in DataLoader worker")
_KILLED = re.compile(r"DataLoader worker .* is killed by signal: ([^.]+)\.")
_WORKER_GONE = re.compile(r"DataLoader worker (.*) exited unexpectedly")
_LOADER_ENDS = (
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
        "a loader worker {} ended without a word; often the host had no memory left for it",
    ),
    (
        re.compile(r"DataLoader timed out after ([\d.]+) seconds"),
        "a loader worker hangs: it made no batch within {} s (loader.timeout_s)",
    ),
)
"""What torch's loader says of its workers, and what we say."""
_LONGEST = 400


@dataclass(frozen=True)
class Failure:
    """Why something ended badly."""

    type: str
    message: str
    out_of_memory: bool = False
    infrastructure: bool = False
    """The machine's fault, not the cell's: worth another try elsewhere or later."""


def classify(error: BaseException) -> Failure:
    """What an exception means."""
    text = f"{error}"
    if _WORKER_GONE.match(text) and _KILLED.match(cause := f"{error.__cause__}"):
        text = cause  # which torch mentions only behind the worker's end
    kind = type(error).__name__
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    shared_full = bool(SHARED_MEMORY_FULL.search(text))
    disk_full = not shared_full and (full or bool(DISK_FULL.search(text)))
    what = "the host's shared memory, /dev/shm, is too small: " * shared_full
    what += "the disk is full: " * disk_full
    return Failure(
        type=kind,
        message=f"{what}{first_sentence(text)}",
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

    An exception that a data-loader worker passes on carries a traceback: its last line counts.
    """
    for pattern, sentence in _LOADER_ENDS:
        if said := pattern.match(text):
            return sentence.format(said[1])
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    line = lines[-1] if _LOADER.match(lines[0]) else _ALLOCATOR.sub("", lines[0])
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
