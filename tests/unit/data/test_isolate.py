import os
import time

import pytest

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
        case "memory":
            try:
                return len(bytearray(MEMORY_BYTES * 2))
            except MemoryError:
                return "refused"
    return item * 2


def test_results_come_in_order_and_lost_items_are_named():
    items = [1, "crash", 2, "hang", "abort", "memory", *range(20)]
    results = run_isolated(work, items, workers=3, timeout_s=1.5)
    assert results[0] == 2
    assert results[1] == Lost("reading it ended the process (exit code 3)")
    assert results[2] == 4
    assert results[3] == Lost("it took longer than 1.5 s")
    assert results[4] == Lost("reading it ended the process (signal SIGABRT)")
    assert results[5] == "refused"
    assert results[6:] == [2 * number for number in range(20)]


def test_an_exception_of_the_task_is_the_caller_s():
    with pytest.raises(KeyError, match="fault"):
        run_isolated(work, [1, "fault", 2], workers=1, timeout_s=60)


def test_no_items_need_no_process():
    assert run_isolated(work, [], workers=4, timeout_s=1) == []
