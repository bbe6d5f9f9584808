"""What exceptions mean."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import make_spec, of_a_script, read_events, write_spec

from feedrate.data.manifest import DataError
from feedrate.devices.base import DeviceError, UnsupportedError
from feedrate.jobs.rounds import CutOffError
from feedrate.jobs.worker import classify, first_sentence


def shared_memory_of_nccl(what):
    """Of NCCL's misc/shmutils.cc, in a container with the 64 MiB that Docker gives."""
    return RuntimeError(
        "NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.27.5\n"
        f"Last error:\nError while {what}"
    )


FULL = "the disk is full: "
SHARED = "the host's shared memory, /dev/shm, is too small: "
NO_SPACE = "No space left on device"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
            "memory: you tried to allocate 4 bytes. Error code 12 (Cannot allocate memory)"
        ),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::100663296"),
        RuntimeError("FATAL ERROR :: MODULE:PT_DEVMEM OOM: No enough memory for defragment."),
        # PT_SYNHELPER_FATAL in get_workspace_buffer of the bridge (backend/synapse_helpers)
        RuntimeError("FATAL ERROR :: MODULE:PT_SYNHELPER workspace Allocation of size ::4 failed!"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_out_of_memory_is_recognised(error):
    failure = classify(error)
    assert (failure.out_of_memory, failure.infrastructure) == (True, False)


@pytest.mark.parametrize(
    ("error", "infrastructure", "message"),
    [
        (OSError(errno.ENOSPC, NO_SPACE), True, FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True, FULL),
        (RuntimeError(f"SafetensorError: I/O error: {NO_SPACE} (os error 28)"), True, FULL),
        # The next try would meet the same shared memory.
        (RuntimeError(f"unable to write to file </torch_7_2_0>: {NO_SPACE} (28)"), False, SHARED),
        (
            RuntimeError(f"unable to allocate shared memory(shm) for file </t_1>: {NO_SPACE} (28)"),
            False,
            SHARED,
        ),
        (
            shared_memory_of_nccl(f"creating /dev/shm/nccl-WU88OE (size 9), error: {NO_SPACE}"),
            False,
            SHARED + "NCCL error",
        ),
        (shared_memory_of_nccl("attaching to /dev/shm/nccl-WU88OE, error: Gone"), False, "NCCL"),
        (DeviceError("no CUDA device"), True, "no CUDA device"),
        (DataError("images/1.jpg has other contents"), True, "images/1.jpg"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), True, "CUDA error"),
        (RuntimeError("all CUDA-capable devices are busy or unavailable"), True, "all CUDA"),
        (RuntimeError("synDeviceAcquireByModuleId failed"), True, "synDevice"),
    ],
)
def test_faults_of_the_machine_and_their_messages(error, infrastructure, message):
    failure = classify(error)
    assert (failure.out_of_memory, failure.infrastructure) == (False, infrastructure)
    assert failure.message.startswith(message)


def test_shared_memory_that_cannot_be_mapped_is_too_small():
    text = "unable to mmap 87 bytes from file </torch_7_3_0>: Cannot allocate memory (12)"
    failure = classify(RuntimeError(text))
    assert failure.message.startswith(SHARED)
    assert not failure.infrastructure


def test_a_worker_without_shared_memory_says_so():
    text = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that …"
    assert "(signal: Bus error): the host's shared memory, /dev/shm" in first_sentence(text)


def test_a_torch_that_cannot_load_a_vendors_software_is_the_machines_fault():
    """As Intel's plugin fails beside PyPI's torch, whose version has no local part."""
    error = RuntimeError("Failed to load the backend extension: device_backend. You can disable …")
    error.__cause__ = AttributeError("'NoneType' object has no attribute 'startswith'")
    failure = classify(error)
    assert failure.infrastructure
    assert "AttributeError: 'NoneType'" in failure.message
    assert "doctor" in failure.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnsupportedError("no"), ""),
        (CutOffError(), "CutOffError"),
        (ValueError("out of bounds"), "ValueError"),
        (RuntimeError("shape mismatch"), "RuntimeError"),
    ],
)
def test_the_cells_own_failures(error, kind):
    """Our messages are sentences, so our classes' names stay out of causes."""
    failure = classify(error)
    assert not failure.infrastructure
    assert not failure.out_of_memory
    assert failure.type == kind


def test_what_a_loader_worker_passes_on_is_told_by_its_last_line():
    begin = "Caught DataError in DataLoader worker process 0.\nOriginal Traceback:\n  x\n"
    for name in ("DataError", "feedrate.data.manifest.DataError"):
        assert first_sentence(f"{begin}{name}: y") == "y"


@given(st.text())
def test_any_message_becomes_one_line_of_readable_length(text):
    line = first_sentence(text)
    assert len(line.splitlines()) <= 1
    assert len(line) <= 400


def test_a_cut_leaves_no_part_of_a_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3kret-s3kret")
    for before in range(380, 401):
        assert "s3k" not in first_sentence("x" * before + "s3kret-s3kret")


def test_a_rank_that_fails_ends_at_once(tmp_path):
    """Not by an exit in order, which waits: on a GPU for NCCL, here for a thread."""
    run, mark = write_spec(tmp_path / "run", make_spec()), tmp_path / "ended in order"
    script = Path(__file__).with_name("failing_rank.py")
    words = [script, mark, "--run", run, "--data", tmp_path / "nothing"]
    ended = subprocess.run(
        [sys.executable, *map(str, words)], env=of_a_script(), timeout=100, check=False
    )
    assert ended.returncode == 1
    assert not mark.exists()
    error, end = read_events(run / "events.jsonl")[-2:]
    assert (error["event"], end["event"], end["ok"]) == ("error", "end", False)


@pytest.mark.parametrize("kind", [EOFError, ConnectionResetError])
def test_a_worker_that_dies_while_it_sends_a_batch_is_named(kind):
    """torch had not noticed its end yet, and raised the error of the connection: without a text."""

    def _try_get_data():
        raise kind

    with pytest.raises(kind) as found:
        _try_get_data()
    assert classify(found.value).message.startswith("a loader worker was killed")
    assert "loader worker" not in classify(kind()).message, "one of another connection"
