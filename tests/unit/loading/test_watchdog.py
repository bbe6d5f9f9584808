"""A device's decoder that never comes back: told with its cause, and nobody waits for it."""

import os
import subprocess
import sys
import threading
import time

import pytest

from feedrate.config.settings import LoaderSettings
from feedrate.jobs.worker import classify
from feedrate.loading.path import open_path
from feedrate.loading.workers import HangError, end_process_on_hang, raise_on_hang

TOLD = (
    "loader.decode: device: the decoder on the device hangs: it made no batch within 0.2 s "
    "(loader.timeout_s)"
)


class Rows(list):
    batch_size = 4


@pytest.fixture
def raised(monkeypatch):
    """What threads raise, and the sign that one has."""
    found, sign = [], threading.Event()

    def hook(arguments):
        found.append(arguments.exc_value)
        sign.set()

    monkeypatch.setattr(threading, "excepthook", hook)
    return found, sign


def watches():
    return [thread for thread in threading.enumerate() if thread.name == "watch"]


def test_what_comes_in_time_passes_through(raised):
    assert list(raise_on_hang(iter(range(50)), 5, "it")) == list(range(50))
    assert raised[0] == []


def test_the_time_in_which_nobody_asks_does_not_count(raised):
    items = raise_on_hang(iter(range(3)), 0.5, "it")
    assert next(items) == 0
    time.sleep(0.8)
    assert list(items) == [1, 2]
    assert raised[0] == []


def test_errors_pass_through_and_the_watch_ends_with_its_items():
    def broken():
        yield 1
        raise ValueError("bad")

    before = len(watches())
    items = raise_on_hang(broken(), 0.2, "it")
    assert next(items) == 1
    with pytest.raises(ValueError, match="bad"):
        next(items)
    left_early = raise_on_hang(iter([1, 2]), 0.2, "it")
    next(left_early)
    left_early.close()
    for thread in watches()[before:]:
        thread.join(5)
    assert len(watches()) <= before


def hang_until(raised):
    """A stand-in for a call that does not come back before somebody has seen that it hangs."""

    def hang(*_args, **_options):
        assert raised[1].wait(20)
        raise RuntimeError("given up")

    return hang


def test_nvjpeg_that_hangs_is_told(cuda, decode_with, make_pairs, raised):
    decode_with(hang_until(raised))
    path = open_path(cuda, LoaderSettings(decode="device", timeout_s=0.2))
    with pytest.raises(Exception, match="given up"):
        next(path.batches(make_pairs(decode="device"), Rows([[0, 1, 2, 3]])))
    (error,) = raised[0]
    assert isinstance(error, HangError)
    assert classify(error).message == TOLD


def test_a_media_pipeline_that_hangs_is_told(media, gaudi, make_pairs, raised, monkeypatch):
    monkeypatch.setattr(media.MediaPipe, "run", hang_until(raised))
    path = open_path(gaudi, LoaderSettings(decode="device", timeout_s=0.2))
    with pytest.raises(RuntimeError, match="given up"):
        next(path.batches(make_pairs("train"), Rows([[0, 1, 2, 3]])))
    assert [classify(error).message for error in raised[0]] == [TOLD]


HANGS = """
import sys, threading
from feedrate.loading.workers import end_process_on_hang, raise_on_hang
from feedrate.jobs.events import EventLog
from feedrate.jobs.worker import write_error
from pathlib import Path

log = EventLog(Path(sys.argv[1]), 0)
end_process_on_hang(lambda error: write_error(log, error))
threading.Thread(target=threading.Event().wait).start()  # a thread that waits for the driver

def hang():
    threading.Event().wait()
    yield

next(raise_on_hang(hang(), 0.2, "the decoder"))
"""


def test_the_process_leaves_without_waiting_and_its_events_hold_the_cause(tmp_path):
    from feedrate.jobs.events import EventTail

    command = [sys.executable, "-c", HANGS, str(tmp_path)]
    ended = subprocess.run(command, check=False, timeout=60, env={**os.environ})
    assert ended.returncode == 1
    error, end = EventTail(tmp_path / "events.jsonl").read()
    assert (error.type, error.infrastructure) == ("", False)
    assert error.message == ("the decoder hangs: it made no batch within 0.2 s (loader.timeout_s)")
    assert end.ok is False


def test_another_error_of_a_thread_does_not_end_the_process(raised):
    end_process_on_hang(print)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    assert [type(error) for error in raised[0]] == [ZeroDivisionError]
