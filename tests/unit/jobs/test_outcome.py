"""The result of a job, from its events, its exit and the end of its output."""

import signal

import pytest
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


def test_all_ranks_ended_well(tmp_path):
    write(tmp_path, GOOD, [window(), End(rank=1, ok=True)])
    result = classify_exit(make_spec(count=2), tmp_path, ProcessExit(exit_code=0))
    assert (result.status, result.cause) == ("ok", "")


def test_a_rank_without_a_window_spoils_the_run(tmp_path):
    write(tmp_path, GOOD)
    result = classify_exit(
        make_spec(count=2), tmp_path, ProcessExit(exit_code=1, tail=["Gloo: peer gone", ""])
    )
    assert result.status == "failed"
    assert result.cause == "exit code 1 without an error event; last line: Gloo: peer gone"


def test_a_crash_on_the_way_out_takes_no_results_back(tmp_path):
    write(tmp_path, GOOD[:2])
    result = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=-signal.SIGABRT))
    assert result.status == "ok"
    assert result.cause == "after its results were written: rank 0 was killed by signal 6 (Aborted)"


def test_an_evaluation_that_was_asked_for_belongs_to_the_results(tmp_path):
    write(tmp_path, [*GOOD[:2], Evaluation(rank=0, moment="before"), error("no labels")])
    result = classify_exit(make_spec(evaluate=True), tmp_path, ProcessExit(exit_code=1))
    assert (result.status, result.cause) == ("failed", "RuntimeError: no labels")


def test_out_of_memory_of_any_rank_counts(tmp_path):
    lost = error("Connection closed by peer", "DistBackendError")
    write(tmp_path, [lost], [error("CUDA out of memory", "OutOfMemoryError", out_of_memory=True)])
    result = classify_exit(make_spec(count=2), tmp_path, ProcessExit(exit_code=1))
    assert result.status == "out_of_memory"
    assert result.cause == "OutOfMemoryError: CUDA out of memory"


def test_the_rank_that_failed_is_told_not_the_one_that_lost_its_peer(tmp_path):
    lost = error("Connection closed by peer [127.0.0.1]:123", "DistBackendError")
    write(tmp_path, [lost], [error("index out of range", "IndexError")])
    result = classify_exit(make_spec(count=2), tmp_path, ProcessExit(exit_code=1))
    assert result.cause == "IndexError: index out of range"


def test_a_killed_rank_is_told_even_if_its_peer_is_seen_to_fail_first(tmp_path):
    """torchrun calls the rank that lost its peer the root cause."""
    text = TORCHRUN_KILLED.replace("exitcode  : -9 ", "exitcode  : 1 ")
    text = text.replace("exitcode  : -15 ", "exitcode  : -9 ")
    write(tmp_path, [error("Connection closed by peer [127.0.0.1]:123", "RuntimeError")])
    end = ProcessExit(exit_code=1, tail=text.splitlines())
    cause = classify_exit(make_spec(count=2), tmp_path, end).cause
    assert cause.startswith("rank 0 was killed by signal 9")
    stopped = ProcessExit(exit_code=1, tail=text.replace(": -9 ", ": -15 ").splitlines())
    assert classify_exit(make_spec(count=2), tmp_path, stopped).cause.startswith("RuntimeError")


def test_a_killed_rank_is_told_with_its_signal(tmp_path):
    end = ProcessExit(exit_code=-9)
    result = classify_exit(make_spec(), tmp_path, end)
    assert result.status == "failed"
    assert result.cause == (
        "rank 0 was killed by signal 9 (Killed; from outside: the kernel reports no lack of memory)"
    )


def test_a_rank_killed_under_torchrun_is_found_in_its_report(tmp_path):
    write(tmp_path, [error("Connection reset by peer", "DistBackendError")])
    end = ProcessExit(exit_code=1, tail=TORCHRUN_KILLED.splitlines())
    assert classify_exit(make_spec(count=2), tmp_path, end).cause.startswith(
        "rank 1 was killed by signal 9 (Killed"
    )


def test_a_rank_killed_under_mpirun_is_found_in_its_report(tmp_path):
    line = "mpirun noticed that process rank 5 with PID 0 on node n1 exited on signal 11 (Seg)."
    cause = classify_exit(
        make_spec(count=2), tmp_path, ProcessExit(exit_code=139, tail=[line])
    ).cause
    assert cause == "rank 5 was killed by signal 11 (Segmentation fault)"


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
    assert classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1)).status == "failed"
    killed = ProcessExit(exit_code=1, oom_kills=1)
    assert classify_exit(make_spec(), tmp_path, killed).status == "out_of_memory"


def test_out_of_memory_before_any_event_is_found_in_the_output(tmp_path):
    end = ProcessExit(exit_code=-6, tail=["terminate called after throwing 'std::bad_alloc'"])
    assert classify_exit(make_spec(), tmp_path, end).status == "out_of_memory"


@pytest.mark.parametrize("end", [{"exit_code": -15, "stopped_after_min": 60}, {"exit_code": -11}])
def test_words_about_memory_are_no_cause_where_the_end_has_another(tmp_path, end):
    """A compiler that tries kernels prints such words, and goes on."""
    tail = ["torch.OutOfMemoryError: CUDA out of memory. Ignoring this choice."]
    result = classify_exit(make_spec(), tmp_path, ProcessExit(tail=tail, **end))
    assert result.status == "failed"


def test_memory_that_another_node_lacked_is_told_by_slurm(tmp_path):
    line = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have"
    write(tmp_path, [error("NCCL error: remote process exited", "DistBackendError")])
    end = ProcessExit(exit_code=1, tail=[*TORCHRUN_KILLED.splitlines(), line])
    result = classify_exit(make_spec(count=2), tmp_path, end)
    assert result.status == "out_of_memory"
    assert "the kernel killed it for lack of memory" in result.cause


FULL = "wandb: ERROR Failed to write /home/u/.cache/wandb: [Errno 28] No space left on device"


@pytest.mark.parametrize("end", [{"tail": [FULL]}, {"disk_full": True}])
def test_complete_results_stay_valid_whatever_disk_was_full(tmp_path, end):
    write(tmp_path, GOOD)
    assert classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=0, **end)).status == "ok"


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


@pytest.mark.parametrize("line", SRUN)
def test_a_node_lost_after_the_results_takes_none_of_them_back(tmp_path, line):
    write(tmp_path, GOOD[:2])
    assert (
        classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, tail=[line])).status == "ok"
    )


@pytest.mark.parametrize(
    "line", ["srun: error: n1: task 0: Exited with exit code 1", "srun: error: n1: task 0: Killed"]
)
def test_that_a_task_of_srun_ended_is_the_cells_own(tmp_path, line):
    write(tmp_path, [error("boom")])
    assert classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1, tail=[line])).cause == (
        "RuntimeError: boom"
    )


def test_a_job_past_its_time_is_told_with_the_limit(tmp_path):
    result = classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=-15, stopped_after_min=1.5))
    assert (result.status, result.cause) == (
        "failed",
        "stopped after 1.5 min (protocol.timeout_min)",
    )


def test_our_own_errors_are_sentences_in_a_cause(tmp_path):
    """A cause once was "UnsupportedError: loader.form: …"."""
    fault = UnsupportedError("loader.form: best: spdl has no ffmpeg")
    write_error(EventLog(tmp_path, 0), fault)
    assert classify_exit(make_spec(), tmp_path, ProcessExit(exit_code=1)).cause == str(fault)
