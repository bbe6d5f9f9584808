import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.logs.causes import MAX_CHARS, explain, find_cause, one_line

TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'

CASES = [
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 2684354560 bytes. Error code 12 (Cannot allocate)",
        "out_of_memory",
        "2.50 GiB",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a",
        "out_of_memory",
        "20.00 MiB",
    ),
    ("RuntimeError: CUDA error: out of memory", "out_of_memory", "device ran out"),
    (
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for "
        "size::3288334336 (3136)MB",
        "out_of_memory",
        "HPU ran out of memory: 3.06 GiB",
    ),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0", "out_of_memory", "killed"),
    ("MemoryError", "out_of_memory", "host ran out"),
    ("OSError: [Errno 28] No space left on device: 'x'", "failure", "disk is full"),
    ("OSError: [Errno 122] Disk quota exceeded", "failure", "quota"),
    ("ModuleNotFoundError: No module named 'simplejpeg'", "failure", "simplejpeg is not installed"),
    (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",
        "failure",
        "worker was killed (signal Killed)",
    ),
    (
        "RuntimeError: DataLoader worker (pid(s) 4, 5) exited unexpectedly",
        "failure",
        "exited unexpectedly",
    ),
    (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
        "that dataloader's workers are out of shared memory.",
        "failure",
        "/dev/shm",
    ),
    (
        "slurmstepd: error: *** JOB 7 CANCELLED DUE TO TIME LIMIT ***",
        "infrastructure",
        "time",
    ),
    ("slurmstepd: error: *** JOB 7 CANCELLED DUE TO PREEMPTION ***", "infrastructure", "preempt"),
    ("RuntimeError: No CUDA GPUs are available", "infrastructure", "no usable CUDA"),
    ("synDeviceAcquireByModuleId failed: busy", "infrastructure", "acquire an HPU"),
    ("NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.", "infrastructure", "lost"),
    (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, remote process",
        "infrastructure",
        "NCCL",
    ),
    (
        "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1",
        "infrastructure",
        "connection between the ranks",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to bind to port 29500: "
        "EADDRINUSE",
        "infrastructure",
        "port",
    ),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load", "failure", "network"),
    ("ValueError: batch_size must be positive", "failure", "ValueError: batch_size must be"),
    ("my.package.OddError", "failure", "OddError."),
]


@pytest.mark.parametrize(("line", "kind", "words"), CASES)
@pytest.mark.parametrize("before", ["", TRACE])
def test_causes_by_what_is_printed(line, kind, words, before):
    cause = find_cause(before + line + "\n")
    assert cause is not None
    assert cause.kind == kind
    assert words in cause.sentence
    assert cause.sentence.endswith((".", ")"))


def test_memory_goes_before_the_connection_that_broke_because_of_it():
    log = (
        f"{TRACE}RuntimeError: [gloo] Connection closed by peer\n"
        f"{TRACE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    assert find_cause(log).kind == "out_of_memory"


def test_a_ranks_own_error_goes_before_the_others_broken_connection():
    log = (
        f"[rank0]: {TRACE}[rank0]: ValueError: bad label\n"
        f"{TRACE}RuntimeError: [x/gloo/transport/tcp/pair.cc:1] Connection closed by peer\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    )
    assert find_cause(log) == ("failure", "ValueError: bad label.")


def test_an_early_warning_is_no_cause():
    log = f"warning: No module named 'triton', going on\n{TRACE}KeyError: 'image'\n"
    assert find_cause(log) == ("failure", "KeyError: 'image'.")


def test_of_a_long_log_what_follows_the_traceback_and_the_end_are_searched():
    noise = "frame\n" * 100_000
    for log in (
        f"{noise}{TRACE}KeyError: 'image'\n{noise}",
        f"{TRACE}{noise}KeyError: 'image'\n",
        f"{noise}KeyError: 'image'\n",
    ):
        assert find_cause(log) == ("failure", "KeyError: 'image'.")


def test_a_job_stopped_from_outside():
    log = f"{TRACE}torch.distributed.SignalException: Process 12 got signal: 15\n"
    assert "signal 15" in find_cause(log).sentence


def test_without_a_cause_the_last_line_is_told():
    assert find_cause("step 1\nstep 2\n") is None
    assert explain("step 1\nstep 2\n\n") == "No cause in the log; it ends with: step 2"
    assert explain(" \n") == "The job ended without a word in its log."


def test_tokens_never_reach_a_sentence():
    token = "hf_" + "Ab1" * 10
    sentence = explain(f"{TRACE}ValueError: {token} is wrong\n")
    assert token not in sentence
    assert "(token)" in sentence


@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode("latin-1")))
def test_any_log_gives_one_line(text):
    sentence = explain(text)
    assert sentence
    assert "\n" not in sentence
    assert len(sentence) <= MAX_CHARS
    assert len(one_line(text)) <= MAX_CHARS
