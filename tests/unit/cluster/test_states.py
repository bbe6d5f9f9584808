"""Ends of jobs that Snakemake's Slurm executor does not know by itself."""

import asyncio
import inspect
import logging

import pytest
import snakemake_executor_plugin_slurm as plugin

from feedrate.cluster.states import FORGOTTEN, States, mend_executor

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


def test_the_executor_asks_through_it(monkeypatch):
    """With its own question, put to a command that answers as squeue does."""
    monkeypatch.setattr(plugin, "query_job_status", plugin.query_job_status)
    mend_executor(requeue=False)
    mended = plugin.query_job_status
    mend_executor(requeue=False)
    assert plugin.query_job_status is mended
    states, took_s = asyncio.run(mended("printf '%s|%s\\n' 7 PREEMPTED 8 RUNNING", LOG))
    assert states == {"7": "CANCELLED", "8": "RUNNING"}
    assert took_s >= 0
    source = inspect.getsource(plugin.Executor.check_active_jobs)
    assert "await query_job_status(" in source
    for word in ("CANCELLED", FORGOTTEN):
        assert f'"{word}"' in source
