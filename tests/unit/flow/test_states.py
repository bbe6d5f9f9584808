"""Ends of jobs that Snakemake's Slurm executor does not know by itself."""

import asyncio
import inspect
import logging

import pytest
import snakemake_executor_plugin_slurm as plugin

from feedrate.flow.lost import FORGOTTEN, LONGEST_PAUSE_S, States, mend_executor

LOG = logging.getLogger("test")


def ask(states):
    return asyncio.run(states("squeue", LOG))


@pytest.fixture
def answers():
    """What Slurm answers, one answer a question; None: it does not answer."""
    given = []

    async def query(command, logger):
        answer = given.pop(0)
        return (None, None) if answer is None else (answer, 0.1)

    def _make(*words, requeue=False):
        given.extend(words)
        return States(query, requeue=requeue)

    return _make


@pytest.mark.parametrize(
    ("state", "requeue", "told"),
    [
        *(("RUNNING", False, "RUNNING"), ("NODE_FAIL", False, "NODE_FAIL")),
        *(("PREEMPTED", False, "CANCELLED"), ("PREEMPTED", True, "PREEMPTED")),
        *(("CANCELLED by 1000", False, "CANCELLED"), ("", False, "")),
    ],
)
def test_states_in_the_executors_words(answers, state, requeue, told):
    assert ask(answers({"7": state}, requeue=requeue)) == ({"7": told}, 0.1)


def test_a_job_that_slurm_has_forgotten_has_ended(answers):
    states = answers({"7": "RUNNING", "8": "RUNNING"}, {"8": "COMPLETED"}, {"9": "PENDING"})
    ask(states)
    assert ask(states)[0] == {"7": FORGOTTEN, "8": "COMPLETED"}
    assert ask(states)[0] == {"7": FORGOTTEN, "8": FORGOTTEN, "9": "PENDING"}


def test_a_controller_that_does_not_answer_ends_nothing(answers):
    states = answers({"7": "RUNNING"}, None, {"7": "RUNNING"})
    ask(states)
    assert ask(states) == (None, None)
    assert ask(states) == ({"7": "RUNNING"}, 0.1)


@pytest.fixture
def mend(monkeypatch):
    """The executor as it is installed, mended; and as it was when the test is over."""
    pause = plugin.Executor.next_seconds_between_status_checks
    monkeypatch.setattr(plugin, "query_job_status", plugin.query_job_status)
    monkeypatch.setattr(plugin.Executor, "next_seconds_between_status_checks", pause)

    def _mend(**settings):
        mend_executor(plugin.ExecutorSettings(**settings))
        return plugin.Executor.__new__(plugin.Executor)

    return _mend


def test_the_executor_asks_through_it(mend):
    """With its own question, put to a command that answers as squeue does."""
    mend(no_requeue=True)
    mended = plugin.query_job_status
    mend(no_requeue=True)
    assert plugin.query_job_status is mended
    states, took_s = asyncio.run(mended("printf '%s|%s\\n' 7 PREEMPTED 8 RUNNING", LOG))
    assert states == {"7": "CANCELLED", "8": "RUNNING"}
    assert took_s >= 0
    source = inspect.getsource(plugin.Executor.check_active_jobs)
    assert "await query_job_status(" in source
    for word in ("CANCELLED", FORGOTTEN):
        assert f'"{word}"' in source


def test_where_slurm_starts_preempted_jobs_again_it_is_left_to_it(mend):
    mend(requeue=True)
    states, _ = asyncio.run(plugin.query_job_status("echo '7|PREEMPTED'", LOG))
    assert states == {"7": "PREEMPTED"}


@pytest.mark.parametrize(("first_s", "longest_s"), [(1, LONGEST_PAUSE_S), (60, 60)])
def test_the_pause_between_two_looks_has_an_end(mend, first_s, longest_s):
    executor = mend(init_seconds_before_status_checks=first_s)
    pauses = []
    executor.next_seconds_between_status_checks = first_s
    for _ in range(20):  # as the executor counts up
        pauses.append(executor.next_seconds_between_status_checks)
        executor.next_seconds_between_status_checks = min(pauses[-1] + 10, 180)
    assert pauses[0] == first_s
    assert max(pauses) == longest_s
