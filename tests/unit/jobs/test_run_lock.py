"""The lock of a run: one holder at a time, whatever becomes of the others."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lock_holders import SAME, away, holder

from feedrate.core import slurm
from feedrate.jobs import run_lock
from feedrate.jobs.run_lock import (
    HolderWatch,
    Identity,
    LostLock,
    RunConflict,
    RunLock,
    acquire,
    history,
    newest,
    start_ticks,
    take_over,
    try_lock,
)

CONTENDER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from lock_holders import holder
from feedrate.jobs.run_lock import acquire
run = Path(sys.argv[1])
def log(word):
    stream = os.open(run / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(stream, f"{word} {os.getpid()}\\n".encode())
    os.close(stream)
me = holder(token=str(os.getpid()))
while not (run / "go").exists():
    time.sleep(0.005)
lock, seen = acquire(run, me, lambda: None, print)
with lock:
    log("in")
    time.sleep(0.1)
    lock.renew()
    log("out")
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No waiting between looks, and no Slurm."""
    monkeypatch.setattr(run_lock, "POLL_S", 0.01)
    monkeypatch.setattr(slurm, "find", lambda job: None)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the test moves."""
    now = [1000.0]
    monkeypatch.setattr(run_lock.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(run_lock.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 1.0))
    return now


def nobody_waits():
    raise AssertionError("it should not have waited")


def give_up():
    raise KeyboardInterrupt


def take_at_once(run, me=None):
    return acquire(run, me or holder(), nobody_waits, print)[0]


def test_a_free_run_is_locked_without_a_word(tmp_path):
    told = []
    lock, seen = acquire(tmp_path, holder(), nobody_waits, told.append)
    assert (lock.number, seen, told) == (1, set(), [])
    sight = newest(tmp_path)
    assert sight.holder == holder()
    assert not sight.is_released


def test_leaving_it_lets_the_next_in_and_tells_it_why(tmp_path):
    with take_at_once(tmp_path) as lock:
        lock.reason = "TIMEOUT 30"
    assert newest(tmp_path).reason == ["TIMEOUT", "30"]
    assert take_at_once(tmp_path, holder(token="next")).number == 2
    assert [sight.holder.token for sight in history(tmp_path)] == ["next", "me"]


def test_a_living_holder_on_this_host_is_waited_for(tmp_path):
    try_lock(tmp_path, holder(token="first"), 0)
    told = []
    with pytest.raises(KeyboardInterrupt):
        acquire(tmp_path, holder(), give_up, told.append)
    assert told == [
        f"waiting for the result of another job of this run (process {os.getpid()} on here)"
    ]


def test_a_holder_on_this_host_whose_process_is_gone_is_followed_at_once(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        pass
    try_lock(tmp_path, holder(pid=gone.pid, started=5), 0)
    assert take_at_once(tmp_path).number == 2


def test_a_process_that_has_ended_but_is_not_yet_buried_does_not_live():
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as ended:
        started = start_ticks(ended.pid)
        ended.stdout.read()
        while start_ticks(ended.pid) is not None:
            time.sleep(0.01)
        assert Path(f"/proc/{ended.pid}").exists()
        assert not holder(pid=ended.pid, started=started).is_running


def test_a_holder_elsewhere_without_a_sign_of_life_is_dead_by_the_watchers_own_clock(
    tmp_path, clock
):
    try_lock(tmp_path, away(), 0)
    began = clock[0]
    lock, seen = acquire(tmp_path, holder(), lambda: None, lambda text: None)
    assert (lock.number, seen) == (2, set())
    assert clock[0] - began == pytest.approx(run_lock.STALE_S, abs=2)


def test_a_holder_elsewhere_that_beats_is_alive_for_as_long_as_it_does(tmp_path, clock):
    other = try_lock(tmp_path, away(), 0)
    watcher = HolderWatch(holder())
    assert watcher.is_alive(newest(tmp_path)) is None  # nobody knows yet
    for _ in range(5):
        clock[0] += run_lock.STALE_S - 1
        other.heartbeat()
        assert watcher.is_alive(newest(tmp_path)) is True
    clock[0] += run_lock.STALE_S
    assert watcher.is_alive(newest(tmp_path)) is False


@pytest.mark.parametrize(
    ("state", "wait_s"),
    [
        ("CANCELLED", run_lock.QUIET_S),
        ("NODE_FAIL", run_lock.QUIET_S),
        ("RUNNING", run_lock.STALE_S),
    ],
)
def test_slurms_word_shortens_the_watch_of_a_silent_holder(
    tmp_path, clock, monkeypatch, state, wait_s
):
    monkeypatch.setattr(slurm, "find", lambda job: slurm.Job(id=job, state=state))
    try_lock(tmp_path, away(), 0)
    began = clock[0]
    acquire(tmp_path, holder(), lambda: None, lambda text: None)
    assert clock[0] - began == pytest.approx(wait_s, abs=2)


def test_slurms_word_kills_nobody_who_beats(tmp_path, clock, monkeypatch):
    """A node that lost its daemon: its job is over for Slurm, and runs on."""
    monkeypatch.setattr(slurm, "find", lambda job: slurm.Job(id=job, state="NODE_FAIL"))
    other = try_lock(tmp_path, away(), 0)
    watcher = HolderWatch(holder())
    watcher.is_alive(newest(tmp_path))
    for _ in range(20):
        clock[0] += run_lock.QUIET_S - 1
        other.heartbeat()
        assert watcher.is_alive(newest(tmp_path)) is True


def test_of_a_job_that_slurm_started_again_the_earlier_start_is_over(tmp_path, clock):
    try_lock(tmp_path, away(job="12"), 0)
    began = clock[0]
    acquire(tmp_path, holder(job="12"), lambda: None, lambda text: None)
    assert clock[0] - began == pytest.approx(run_lock.QUIET_S, abs=2)


@pytest.mark.parametrize("change", [{"spec": "t"}, {"source": "e"}, {"data": "f"}, {"attempt": 0}])
def test_a_living_job_that_makes_something_else_is_told_and_not_waited_for(tmp_path, change):
    try_lock(tmp_path, holder(identity=msgspec.structs.replace(SAME, **change), job="12"), 0)
    with pytest.raises(RunConflict, match=r"Slurm job 12\) trains this run with other settings"):
        acquire(tmp_path, holder(), nobody_waits, print)
    assert newest(tmp_path).number == 1


@given(st.integers(1, 3), st.integers(1, 3))
def test_a_later_attempt_serves_an_earlier_one(mine, theirs):
    made = Identity(spec="s", source="c", data="d", attempt=theirs)
    wanted = Identity(spec="s", source="c", data="d", attempt=mine)
    assert made.serves(wanted) == (theirs >= mine)


def test_a_torn_lock_is_waited_for_and_then_followed(tmp_path, clock):
    (tmp_path / ".claim-3").write_text('{"identity": {"sp')
    began = clock[0]
    assert acquire(tmp_path, holder(), lambda: None, nobody_is_named)[0].number == 4
    assert clock[0] - began == pytest.approx(run_lock.STALE_S, abs=2)


def nobody_is_named(text):
    raise AssertionError(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400))
def test_wherever_a_lock_is_torn_it_is_no_error(cut):
    with tempfile.TemporaryDirectory() as folder:
        try_lock(Path(folder), holder(), 0)
        path = Path(folder, ".claim-1")
        whole = path.read_bytes()
        path.write_bytes(whole[:cut])
        sight = newest(Path(folder))
        assert sight.number == 1
        assert sight.holder in (None, holder())
        assert not sight.is_released


def test_a_holder_taken_for_dead_finds_out_at_its_next_beat(tmp_path, monkeypatch):
    lock = take_at_once(tmp_path)
    take_over(tmp_path, away())
    lock.heartbeat()  # none is due
    monkeypatch.setattr(lock, "_due_s", 0.0)
    with pytest.raises(LostLock, match=r"process \d+ on there, Slurm job 12\) has taken") as loss:
        lock.heartbeat()
    assert loss.value.token == "away"


def test_it_puts_nothing_in_place_and_leaves_the_others_lock_alone(tmp_path):
    lock = take_at_once(tmp_path)
    take_over(tmp_path, away())
    with pytest.raises(LostLock), lock:
        lock.renew()
    assert not newest(tmp_path).is_released
    assert newest(tmp_path).holder == away()


def test_a_folder_that_was_listed_late_gives_no_second_holder(tmp_path):
    """The lower numbers have been cleared away since: a free number is not enough."""
    RunLock(tmp_path, 7, away()).create()
    assert try_lock(tmp_path, holder(), 3) is None
    assert [path.name for path in tmp_path.iterdir()] == [".claim-7"]


def test_a_lock_on_a_full_disk_leaves_no_torn_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_lock.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        try_lock(tmp_path, holder(), 0)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_race_for_a_dead_lock_hold_it_one_after_the_other(tmp_path):
    try_lock(tmp_path, holder(pid=2**22 + 1), 0)  # no process has that number
    here = str(Path(__file__).parent)
    racers = [
        subprocess.Popen([sys.executable, "-c", CONTENDER, str(tmp_path), here], text=True)
        for _ in range(4)
    ]
    (tmp_path / "go").touch()
    assert [racer.wait(60) for racer in racers] == [0, 0, 0, 0]
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 8
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert entered.removeprefix("in ") == left.removeprefix("out ")
