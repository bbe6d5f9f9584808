"""A crash, a hang or too much memory loses one item; no process outlives the caller."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from feedrate.core.processes import is_alive
from feedrate.data.isolate import MEMORY_BYTES, Lost, run_isolated


def work(item):
    match item:
        case "crash":
            os._exit(3)
        case "abort":
            os.abort()
        case "hang":
            time.sleep(600)
        case "fault":
            raise KeyError("fault")
        case "timeout":
            raise TimeoutError(110, "a file server did not answer")
        case "unusable":
            return Lost(str(os.getpid()))
        case "memory":
            try:
                return len(bytearray(MEMORY_BYTES * 2))
            except MemoryError:
                return "refused"
        case Path():
            item.write_text(str(os.getpid()))
            while True:  # as a decoder that never returns
                time.sleep(600)
    return item * 2


def test_results_come_in_order_and_lost_items_have_reasons():
    items = [1, "crash", 2, "hang", "abort", "memory", *range(20)]
    results = run_isolated(work, items, workers=3, timeout_s=1.5)
    assert results[0] == 2
    assert results[1] == Lost("reading it ended the process (exit code 3)")
    assert results[2] == 4
    assert results[3] == Lost("it took longer than 1.5 s")
    assert results[4] == Lost("reading it ended the process (SIGABRT)")
    assert results[5] == "refused"
    assert results[6:] == [2 * number for number in range(20)]


@pytest.mark.parametrize(("item", "error"), [("fault", KeyError), ("timeout", TimeoutError)])
def test_an_exception_of_the_task_is_raised(item, error):
    with pytest.raises(error, match=r"fault|file server"):
        run_isolated(work, [1, item, 2], workers=1, timeout_s=60)


@pytest.fixture
def hanging(tmp_path):
    """A program in whose worker an item hangs, and that worker."""
    place = tmp_path / "pid"
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_isolate import run_isolated, work\n"
        "run_isolated(work, [pathlib.Path(sys.argv[1])], workers=1, timeout_s=600)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code, place],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not (place.exists() and place.read_text()):
        assert program.poll() is None
        time.sleep(0.05)
    worker = psutil.Process(int(place.read_text()))
    yield program, worker
    program.kill()
    if is_alive(worker):
        worker.kill()
    program.communicate()


def test_ctrl_c_stops_the_workers_without_a_word_from_them(hanging):
    program, worker = hanging
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert errors.count("Traceback") == 1
    assert errors.strip().endswith("KeyboardInterrupt")
    assert not is_alive(worker)


def test_workers_die_with_their_parent(hanging):
    program, worker = hanging
    program.kill()
    deadline = time.monotonic() + 60
    while is_alive(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)
