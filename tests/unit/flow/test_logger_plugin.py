"""`--logger feedrate`: which of Snakemake's records are shown, and in what words."""

import logging
from types import SimpleNamespace

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_feedrate import LogHandler

SENTENCE = "config/config.yaml: dataset: 'x' is not allowed"
WRAPPED = (
    f'WorkflowError in file "/p/workflow/rules/common.smk", line 18:\n{SENTENCE}\n'
    '  File "/p/workflow/rules/common.smk", line 18, in <module>'
)


@pytest.fixture
def handler():
    """Makes a handler with some of Snakemake's settings."""

    def make(**settings):
        plain = {"quiet": set(), "dryrun": False, "verbose": False}
        return LogHandler(SimpleNamespace(**plain | settings), None)

    return make


def record(message, level=logging.ERROR, **values):
    made = logging.LogRecord("snakemake", level, "", 0, message, None, None)
    made.__dict__.update(values)
    return made


@pytest.mark.parametrize("settings", [{}, {"dryrun": True}, {"quiet": {"all"}}])
def test_a_sentence_of_ours_stands_alone(handler, capsys, settings):
    handler(**settings).emit(record(WRAPPED, event=LogEvent.ERROR))
    assert capsys.readouterr().err == f"{SENTENCE}\n"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"event": LogEvent.ERROR}, True),
        ({}, True),
        ({"event": LogEvent.JOB_ERROR}, False),
        ({"level": logging.WARNING}, False),
    ],
)
def test_errors_are_shown_however_quiet_snakemake_is(handler, values, shown):
    made = handler(quiet={"all"})
    made.addFilter(lambda _: False)  # Snakemake's own, with --quiet all
    assert bool(made.filter(record(WRAPPED, **values))) is shown


def test_errors_of_others_keep_their_place(handler, capsys):
    text = "KeyError in file \"/p/Snakefile\", line 3:\n'x'"
    handler().emit(record(text, event=LogEvent.ERROR))
    assert text in capsys.readouterr().err


def test_a_warning_is_told_once(handler, capsys):
    made = handler()
    for _ in range(2):
        made.emit(record("the disk is slow", logging.WARNING))
    assert capsys.readouterr().err == "the disk is slow\n"


def test_a_failed_job_is_told_with_its_cause_and_that_it_is_tried_again(handler, capsys):
    made = handler()
    job = {"jobid": 1, "rule_name": "train_cpu", "wildcards": {"cell": "w=0", "repeat": "1"}}
    made.emit(record("", logging.INFO, event=LogEvent.JOB_INFO, output=[], **job))
    failed = {"rule_msg": "Job submission failed with exception: no route", "log": [], "output": []}
    made.emit(record("", event=LogEvent.JOB_ERROR, jobid=1, rule_name="train_cpu", **failed))
    made.emit(record("Trying to restart job 1.", logging.INFO))
    made.close()
    assert capsys.readouterr().err.splitlines() == [
        "train_cpu w=0, repeat 1 failed: the job could not be submitted to Slurm: no route",
        "train_cpu w=0, repeat 1: trying again",
    ]


def test_with_nothing_to_do_it_says_so(handler, capsys):
    text = "Nothing to be done (all requested files are present and up to date)."
    handler().emit(record(text, logging.INFO))
    handler(quiet={"all"}).emit(record(text, logging.INFO))
    said = capsys.readouterr().err
    assert said.endswith("nothing to do: all results are there\n")
    assert said.count("\n") == 1
