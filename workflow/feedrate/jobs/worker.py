"""One process of a job, which the supervisor starts for every rank, and what its failures mean."""

import contextlib
import errno
import gc
import importlib
import json
import os
import re
import resource
import signal
import sys
import traceback
from pathlib import Path

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
from feedrate.core.paths import SPEC_NAME
from feedrate.core.processes import die_with_supervisor
from feedrate.core.secrets import Masker
from feedrate.data.manifest import DataError
from feedrate.devices.base import DeviceError, adapter_class
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import Placement, bind_rank
from feedrate.jobs.events import End, Error, EventLog, Note

JOBS = {"training": "feedrate.jobs.train", "inference": "feedrate.jobs.infer"}
"""The module of each task. It imports torch, which starts threads: first the process is bound."""

OUT_OF_MEMORY = re.compile(
    r"out of memory"  # torch.OutOfMemoryError of CUDA
    r"|can't allocate memory"  # DefaultCPUAllocator
    r"|CU(?:BLAS|DNN)_STATUS_\w*ALLOC(?:ATION)?_FAILED"
    r"|PT_DEVMEM\s+(?:Allocation failed|OOM\b)"  # Gaudi; OOM where defragmenting did not help
    r"|workspace Allocation of size ::\d+ failed"  # Gaudi in lazy mode, for a graph
    r"|std::bad_alloc"
    r"|Cannot allocate memory",  # ENOMEM
    re.IGNORECASE,
)
DISK_FULL = re.compile(
    r"No space left on device|os error 28|Disk quota exceeded|os error 122", re.IGNORECASE
)
NO_BACKEND = "Failed to load the backend extension"  # hides a vendor's own error
SHARED_MEMORY_FULL = re.compile(
    r"unable to (?:allocate|resize|open|mmap|write to)\b.*?(?:shared memory|</torch)"
    r"|/dev/shm/nccl-.*No space left on device"
)
"""The kernel reports full shared memory as a device with no space left."""
_MACHINE_FAULT = re.compile(
    r"uncorrectable ECC error|fallen off the bus|devices? (is|are|is/are) busy or unavailable"
    r"|[Dd]evice acquire failed|synDeviceAcquire\w* failed"
)
_ALLOCATOR = re.compile(r"^\[enforce fail at [^\]]*\](?: \S+ == \S+)?\.? *")
"""The place in torch's code where the CPU's allocator gave up; the message follows it."""
_WORKER_TRACEBACK = re.compile(r"^Caught (\w+) in DataLoader worker")
_KILLED = r"DataLoader worker .* is killed by signal: ([^.]+)\."
_WORKER_GONE = r"DataLoader worker (.*) exited unexpectedly"
LOADER_GONE = re.compile(r"a loader worker (was killed (\(signal: Killed|while)|\(.*\) exited)")
"""Our words for a loader worker that was killed, as error events have them."""
_LOADER_MESSAGES = {
    r"DataLoader worker .* is killed by signal: (Bus error)\.": (
        "a loader worker was killed (signal: {}): the host's shared memory, /dev/shm, is full; "
        "give the container more (docker: --shm-size)"
    ),
    _KILLED: "a loader worker was killed (signal: {})",
    _WORKER_GONE: "a loader worker {} exited without an error",
    r"DataLoader timed out after ([\d.]+) seconds": (
        "a loader worker hangs: it made no batch within {} s (loader.timeout_s)"
    ),
}
"""Messages of torch's loader about its workers, and ours in their place; the first match counts."""
_LONGEST = 400


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Choices beyond the spec, none of which is part of the run's identity (see `train`)."""

    store: str = ""  # the folder of the prepared pictures
    winoground: str = ""  # examples.json
    push_to: str = ""
    report_to: tuple[str, ...] = ()
    model_pattern: str = ""


def run_rank(run: Path, data: Path, options: Options | None = None) -> int:
    """Run one rank of a job. If it fails, its events say why and its process ends with 1, at once:
    the launcher then stops the other ranks, which wait for this one.

    --run    folder with spec.json, for events and the Trainer's files
    --data   folder of the prepared dataset
    """
    log = EventLog(run, rank_from_environment()[0])
    try:
        spec, placement = bind_process(run)
        from feedrate.loading.workers import end_process_on_hang  # it imports torch

        end_process_on_hang(lambda error: write_error(log, error))
        gc.disable()  # modules stay: the collector finds next to nothing, in a fifth of the time
        job = importlib.import_module(JOBS[spec.task])
        gc.enable()
        job.run_job(spec, data, run, log, placement, options or Options())
        log.write(End(rank=log.rank, ok=True))
    except Exception as error:
        # For each further loader worker that dies, torch would raise an error in the lines below.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        print(Masker()(traceback.format_exc()), file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):  # the disk may be full: the log has the traceback
            write_error(log, error)
        sys.stdout.flush()
        # An orderly exit waits for threads, and for NCCL's kernels, which wait for the other ranks.
        os._exit(1)
    return 0


def bind_process(run: Path) -> tuple[RunSpec, Placement]:
    """Read spec.json in `run`, and bind this process to its rank's cores and device, and its life
    to its launcher's: a rank that hangs in a driver must not hold the host's lock."""
    die_with_supervisor()
    origin = run / SPEC_NAME
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    _, _, local_rank, local_ranks = rank_from_environment()
    placement = bind_rank(spec.kind, local_rank, local_ranks)
    adapter_class(spec.kind).prepare_process(spec, run)
    return spec, placement


def write_error(log: EventLog, error: Exception) -> None:
    """Write the `error` and `end` events of a rank that failed."""
    log.write(classify(error, log.rank))
    log.write(End(rank=log.rank, ok=False))


def classify(error: BaseException, rank: int = 0) -> Error:
    """The `error` event of an exception, by its type and message."""
    text, cause = str(error), str(error.__cause__)
    if re.match(_WORKER_GONE, text) and re.match(_KILLED, cause):
        text = cause  # torch names the signal only in the exception's cause
    if isinstance(error, EOFError | ConnectionError):
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.name == "_try_get_data" for frame in frames):  # in torch's loader
            text = "a loader worker was killed while it sent a batch"
    no_backend = text.startswith(NO_BACKEND)
    if no_backend:
        reason = f"{type(error.__cause__).__name__}: {error.__cause__}"
        text = (
            f"this torch cannot load its device's software ({reason}); run "
            "`python -m feedrate doctor`"
        )
    message, disk_full = first_sentence(text), False
    if SHARED_MEMORY_FULL.search(text):
        message = f"the host's shared memory, /dev/shm, is too small: {message}"
    elif DISK_FULL.search(text) or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
        message, disk_full = f"the disk is full: {message}", True
    out_of_memory = OUT_OF_MEMORY.search(text) or any(
        kind.__name__ in ("MemoryError", "OutOfMemoryError") for kind in type(error).__mro__
    )
    # oneDNN got no memory for its code. Its message has other causes too, so it counts only where
    # addresses are limited, as `train.memory_gib` does.
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        out_of_memory = out_of_memory or text.startswith("could not create a primitive")
    machine_fault = isinstance(error, DeviceError | DataError) or _MACHINE_FAULT.search(text)
    is_ours = type(error).__module__.startswith("feedrate.") and text
    return Error(
        rank=rank,
        type="" if is_ours else type(error).__name__,
        message=message,
        out_of_memory=bool(out_of_memory) and not disk_full,
        infrastructure=bool(disk_full or no_backend or machine_fault),
        traceback=Masker()("".join(traceback.format_exception(error))),
    )


def note_of(error: BaseException, about: str, rank: int) -> Note:
    """The note of an exception that ends neither the rank nor its results."""
    event = classify(error)
    kind, message, is_memory = event.type, event.message, event.out_of_memory
    return Note(rank=rank, about=about, type=kind, message=message, out_of_memory=is_memory)


def first_sentence(text: str) -> str:
    """The line of a message or of a loader worker's traceback that says what happened, masked."""
    for pattern, sentence in _LOADER_MESSAGES.items():
        if match := re.match(pattern, text):
            return sentence.format(match[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if match := _WORKER_TRACEBACK.match(lines[0]):
        line = re.sub(rf"^[\w.]*\b{match[1]}: ", "", lines[-1])
    else:
        line = _ALLOCATOR.sub("", lines[0])
    line = Masker()(line)  # before the cut, which would leave a part of a secret
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
