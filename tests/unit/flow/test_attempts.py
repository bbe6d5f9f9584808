"""Which runs the next call tries again: those that failed, and those that something disturbed."""

import json
from pathlib import Path

import pytest

from feedrate.flow.attempts import Attempts
from feedrate.results.assemble import parse_logs
from feedrate.results.params import DeviceFacts
from run_folder import make_outcome, make_spec, rank_events, write_run

RECORDS = Path("results/loading/gpu/records.json")


def make_run(repeat, attempt=1, *, others=0, stolen_s=0.0):
    """A run beside `others` jobs, of whose 10 s of CPU time a hypervisor took `stolen_s`."""
    spec = make_spec(repeat=repeat)
    ranks = {rank: rank_events(spec, rank) for rank in range(spec.count)}
    for wanted_s, taken_s in ((0.0, 0.0), (10.0, stolen_s)):
        host = {"cpu_wanted_s": wanted_s, "cpu_stolen_s": taken_s}
        ranks[0].insert(-1, {"event": "machine", "rank": 0, "device": {}, "host": host})
    machine = {"other_training_jobs": others}
    outcome = make_outcome(attempt=attempt, machine_before=machine)
    run = Path(f"results/loading/gpu/workers=1/rep{repeat}")
    return write_run(run, spec=spec, ranks=ranks, outcome=outcome)


def next_attempts(*runs):
    """The attempts of the next plan, after the logs of these runs were parsed."""
    Path("runs").write_text("\n".join(map(str, runs)))
    parse_logs(Path("runs"), DeviceFacts(), "x", RECORDS)
    attempts = Attempts()
    return [attempts.of_run(make_spec(repeat=k), "s") for k in range(1, len(runs) + 1)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("disturbed", [{"others": 1}, {"stolen_s": 2.0}])
def test_only_the_disturbed_run_is_tried_again(disturbed):
    assert next_attempts(make_run(1), make_run(2, **disturbed)) == [1, 2]
    assert next_attempts(make_run(1), make_run(2, attempt=2)) == [1, 2]


def test_a_machine_that_never_is_quiet_ends_the_attempts():
    tried = [next_attempts(make_run(1, attempt=n, stolen_s=2.0)) for n in (1, 2, 3)]
    assert tried == [[2], [3], [3]]


def test_an_attempt_that_was_not_parsed_yet_is_not_the_disturbed_one():
    next_attempts(make_run(1, stolen_s=2.0))
    make_run(1, attempt=2)
    assert Attempts().of_run(make_spec(repeat=1), "s") == 2


@pytest.mark.parametrize("damage", ["", "[]", '{"disturbed": 3}', json.dumps({"some/run": "0af3"})])
def test_a_list_of_records_that_says_nothing_repeats_nothing(damage):
    next_attempts(make_run(1, stolen_s=2.0))
    RECORDS.write_text(damage)
    assert Attempts().of_run(make_spec(repeat=1), "s") == 1
