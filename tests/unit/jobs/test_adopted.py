"""Results that are there already: which are taken, and which are made anew on purpose."""

import json
import os

import msgspec
import pytest
from lock_holders import SAME

from feedrate.core import variables
from feedrate.jobs.outcome import FINISHED, adopt, commit

BEFORE, AFTER = 1_000_000.0, 2_000_000.0
OUTCOME = {
    "status": "ok",
    "spec_digest": "s",
    "source_digest": "c",
    "data_digest": "d",
    "attempt": 1,
}


@pytest.fixture(autouse=True)
def driver(monkeypatch):
    """A driver that began between the two times."""
    monkeypatch.setenv(variables.DRIVER_SINCE, str((BEFORE + AFTER) / 2))
    monkeypatch.delenv(variables.FORCED, raising=False)


@pytest.fixture
def finish(tmp_path):
    """A finished run, as Snakemake leaves it when it begins the same job once more."""

    def _finish(at_s=AFTER, record_s=None, **changes):
        (tmp_path / "train.log").write_text("log")
        (tmp_path / "events.jsonl").write_text("{}")
        commit(tmp_path, {**OUTCOME, **changes}, "token", ["events.jsonl", "train.log"])
        for name in ("outcome.json", "train.log"):
            (tmp_path / name).unlink()
        os.utime(tmp_path / FINISHED, (at_s, at_s))
        if record_s:
            (tmp_path / "record.json").touch()
            os.utime(tmp_path / "record.json", (record_s, record_s))
        return tmp_path

    return _finish


def test_what_an_orphan_finished_under_this_driver_is_put_back(finish):
    run = finish()
    assert adopt(run, SAME, set()) == OUTCOME
    assert json.loads((run / "outcome.json").read_text()) == OUTCOME
    assert (run / "train.log").read_text() == "log"


def test_it_is_made_again_where_the_user_forces_it(finish, monkeypatch):
    monkeypatch.setenv(variables.FORCED, "1")
    assert adopt(finish(BEFORE), SAME, set()) is None
    assert adopt(finish(AFTER), SAME, set()) == OUTCOME


def test_a_job_that_was_seen_at_work_is_believed_whatever_the_clocks_say(finish, monkeypatch):
    monkeypatch.setenv(variables.FORCED, "1")
    run = finish(BEFORE, record_s=BEFORE + 10)
    assert adopt(run, SAME, {"other"}) is None
    assert adopt(run, SAME, {"token"}) == OUTCOME


CHANGES = [{"spec": "t"}, {"source": "e"}, {"data": "f"}, {"inputs": "w"}, {"attempt": 2}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_result_of_something_else_is_left_alone(finish, change):
    assert adopt(finish(), msgspec.structs.replace(SAME, **change), set()) is None


def test_a_result_of_the_same_weights_is_taken_and_one_of_others_is_not(finish):
    run = finish(inputs_digest="w")
    assert adopt(run, msgspec.structs.replace(SAME, inputs="v"), set()) is None
    assert adopt(run, msgspec.structs.replace(SAME, inputs="w"), set()) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"outcome": 3}', '{"outcome": {}}'])
def test_a_torn_or_foreign_file_is_no_result(tmp_path, text):
    (tmp_path / FINISHED).write_text(text)
    assert adopt(tmp_path, SAME, set()) is None
