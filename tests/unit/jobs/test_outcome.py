"""The result of a job, from its events, its exit and the end of its output."""

import pytest
from msgspec.structs import replace
from training_jobs import make_spec, window

from faults import fault
from feedrate.devices.base import UnsupportedError
from feedrate.jobs.events import End, Error, Evaluation, EventLog, Trainer
from feedrate.jobs.outcome import MachineFault, ProcessExit, classify_exit
from feedrate.jobs.worker import write_error

GOOD = [window(), Trainer(rank=0), End(rank=0, ok=True)]
TORCHRUN_KILLED = """
Failures:
[1]:
  time      : 2026-11-21_09:00:00
  host      : vm
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 4710)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4710
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_09:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
"""


def write(folder, *ranks):
    for rank, events in enumerate(ranks):
        log = EventLog(folder, rank)
        for event in events:
            log.write(event)
    return folder


def error(message="boom", kind="RuntimeError", **values):
    return Error(rank=0, type=kind, message=message, **values)


LOST = error("Connection closed by peer [127.0.0.1]:123", "DistBackendError")
OUT_OF_MEMORY = error("CUDA out of memory", "OutOfMemoryError", out_of_memory=True)
TORCHRUN_LOST_FIRST = TORCHRUN_KILLED.replace("exitcode  : -9 ", "exitcode  : 1 ").replace(
    "exitcode  : -15 ", "exitcode  : -9 "
)
"""torchrun calls the rank that lost its peer the root cause."""
MPIRUN = "mpirun noticed that process rank 5 with PID 0 on node n1 exited on signal 11 (Seg)."
SLURM_OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have"
)
WORDS = "torch.OutOfMemoryError: CUDA out of memory. Ignoring this choice."
"""Of a compiler that tries kernels, and goes on."""
FULL = "wandb: ERROR Failed to write /home/u/.cache/wandb: [Errno 28] No space left on device"
LOST_PEER = [[LOST], []]
EXIT = "exit code 1 without an error event; last "
KILLED = "rank {} was killed by signal 9 (Killed"
ENDS = [
    # the events of each rank, exit code and last lines, status and start of the cause
    ([GOOD, [window(), End(rank=1, ok=True)]], 0, "", "ok", ""),
    ([GOOD, []], 1, "Gloo: peer gone\n\n", "failed", "exit code 1 without an error event; last"),
    ([GOOD], 0, FULL, "ok", ""),
    ([GOOD[:2]], -6, "", "ok", "after its results were written: rank 0 was killed by signal 6 (Ab"),
    ([[LOST], [OUT_OF_MEMORY]], 1, "", "out_of_memory", "OutOfMemoryError: CUDA out of memory"),
    ([[LOST], [error("no index", "IndexError")]], 1, "", "failed", "IndexError: no index"),
    (
        [[error()]],
        1,
        "srun: error: n1: task 0: Exited with exit code 1",
        "failed",
        "RuntimeError: ",
    ),
    ([[]], -9, "", "failed", KILLED.format(0) + "; from outside: the kernel reports no lack of"),
    (LOST_PEER, 1, TORCHRUN_KILLED, "failed", KILLED.format(1)),
    (LOST_PEER, 1, TORCHRUN_LOST_FIRST, "failed", KILLED.format(0)),
    (LOST_PEER, 1, TORCHRUN_LOST_FIRST.replace(": -9 ", ": -15 "), "failed", "DistBackendError"),
    (LOST_PEER, 1, TORCHRUN_KILLED + SLURM_OOM, "out_of_memory", KILLED.format(1) + "; the kernel"),
    ([[], []], 139, MPIRUN, "failed", "rank 5 was killed by signal 11 (Segmentation fault)"),
    ([[]], -6, "terminate called after throwing 'std::bad_alloc'", "out_of_memory", ""),
    ([[]], -11, WORDS, "failed", "rank 0 was killed by signal 11"),
    ([[]], -9, WORDS, "failed", KILLED.format(0)),
    ([[]], 1, "ValueError: no such head\nbye", "failed", EXIT + "error: ValueError: no such head"),
    ([[]], 1, "ready\nbye", "failed", EXIT + "line: bye"),
]


@pytest.mark.parametrize(("ranks", "exit_code", "text", "status", "cause"), ENDS)
def test_the_result_follows_from_events_exit_and_output(
    tmp_path, ranks, exit_code, text, status, cause
):
    write(tmp_path, *ranks)
    end = ProcessExit(exit_code=exit_code, tail=text.split("\n"))
    result = classify_exit(make_spec(count=len(ranks)), tmp_path, end)
    assert result.status == status
    assert result.cause.startswith(cause)
    assert bool(result.cause) == bool(cause) or status != "ok"


def test_the_time_limit_is_the_cause_whatever_was_printed(tmp_path):
    end = ProcessExit(exit_code=-15, stopped_after_min=1.5, tail=[WORDS])
    result = classify_exit(make_spec(), tmp_path, end)
    assert result == ("failed", "stopped after 1.5 min (protocol.timeout_min)")


def test_a_disk_that_is_full_after_the_results_takes_none_of_them_back(tmp_path):
    write(tmp_path, GOOD)
    end = ProcessExit(exit_code=0, disk_full=True)
    assert classify_exit(make_spec(), tmp_path, end) == ("ok", "")


def test_inference_is_complete_without_the_trainers_event(tmp_path):
    write(tmp_path, [window(), End(rank=0, ok=True)])
    statuses = {
        task: classify_exit(replace(make_spec(), task=task), tmp_path, ProcessExit(exit_code=0))
        for task in ("inference", "training")
    }
    assert {task: result.status for task, result in statuses.items()} == {
        "inference": "ok",
        "training": "failed",
    }


def test_an_evaluation_that_was_asked_for_belongs_to_the_results(tmp_path):
    write(tmp_path, [*GOOD[:2], Evaluation(rank=0, moment="before"), error("no labels")])
    result = classify_exit(make_spec(evaluate=True), tmp_path, ProcessExit(exit_code=1))
    assert (result.status, result.cause) == ("failed", "RuntimeError: no labels")


@pytest.mark.parametrize(
    ("kills", "status"),
    [(0, fault("killed worker", "job").status), (1, fault("host out of memory", "job").status)],
)
def test_a_kill_by_the_kernel_is_out_of_memory(tmp_path, kills, status):
    result = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=-9, oom_kills=kills))
    assert result.status == status
    reason = "the kernel killed it for lack" if kills else "the kernel reports no lack"
    assert f"{reason} of memory)" in result.cause


def test_a_loader_worker_killed_by_the_kernel_is_out_of_memory(tmp_path):
    log = EventLog(tmp_path, 0)
    write_error(log, RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "))
    bare = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1))
    assert bare.status == "failed"
    assert "memory" not in bare.cause
    killed = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, oom_kills=1))
    assert killed.status == "out_of_memory"
    assert killed.cause.endswith("the kernel killed it for lack of memory")


def test_another_disk_that_is_full_is_not_called_the_runs(tmp_path):
    with pytest.raises(MachineFault, match=r"a disk is full: wandb") as fault:
        classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, tail=[FULL]))
    assert str(tmp_path) not in str(fault.value)


def test_a_fault_of_the_machine_has_no_result(tmp_path):
    write(tmp_path, [error("no CUDA device", "DeviceError", infrastructure=True)])
    with pytest.raises(MachineFault, match="no CUDA device"):
        classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1))


def test_a_full_disk_is_told_with_its_place(tmp_path):
    assert fault("disk full", "job").outcome() == (None, True)
    with pytest.raises(MachineFault, match=f"the disk that holds {tmp_path} is full"):
        classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, disk_full=True))


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: unable to write to file </torch_7_2_0>: No space left on device (28)",
        "Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888), error: "
        "No space left on device (28)",
    ],
)
def test_the_traceback_of_full_shared_memory_reports_no_full_disk(tmp_path, text):
    told = "the host's shared memory, /dev/shm, is too small"
    write(tmp_path, [error(told)])
    result = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, tail=[text]))
    assert result == ("failed", f"RuntimeError: {told}")


SRUN = [
    "srun: error: Node failure on gaudi2-2",
    "srun: error: Unable to create step for job 12: Job/step already completing or completed",
    "srun: error: Unable to confirm allocation for job 12: Invalid job id specified",
    "slurmstepd: error: *** STEP 12.0 ON gaudi2-2 CANCELLED AT 2026-11-21T09:00:00 DUE TO NODE "
    "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
]


@pytest.mark.parametrize("line", SRUN)
def test_a_node_that_srun_lost_is_no_fault_of_the_cell(tmp_path, line):
    assert fault("dead node", "job").outcome() == (None, True)
    write(tmp_path, [error("Connection closed by peer", "DistBackendError")])
    end = ProcessExit(exit_code=1, tail=["step 7", line, "srun: error: n1: task 0: Killed"])
    with pytest.raises(MachineFault, match=line[:30].replace("*", r"\*")):
        classify_exit(make_spec(count=2), tmp_path, end)


def test_a_node_lost_after_the_results_takes_none_of_them_back(tmp_path):
    write(tmp_path, GOOD[:2])
    end = ProcessExit(exit_code=1, tail=SRUN)
    assert classify_exit(make_spec(), tmp_path, end).status == "ok"


def test_our_own_errors_are_sentences_in_a_cause(tmp_path):
    """A cause once was "UnsupportedError: loader.form: …"."""
    fault = UnsupportedError("loader.form: best: spdl has no ffmpeg")
    write_error(EventLog(tmp_path, 0), fault)
    assert classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1)).cause == str(fault)
