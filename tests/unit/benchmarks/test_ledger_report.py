"""What `make ledger` reports: only predictions whose change ran later have an error."""

from benchmarks.ledger import report

from feedrate.results.ledger import Outcome
from feedrate.results.params import DECODE, WORKERS
from feedrate.results.statistics import Estimate


def outcome(rule, setting, predicted, measured, late=False):
    return Outcome(
        made_at="2026-01-01T00:00:00Z",
        rule=rule,
        study="ledger",
        device="cpu",
        cell="a=1",
        machine="host",
        setting=setting,
        level=1,
        target="t",
        before=10.0,
        predicted=Estimate(predicted, predicted, predicted),
        runs=[],
        measured=measured,
        late=late,
    )


def test_errors_are_of_predictions_that_were_made_before_their_change_ran():
    found = [
        outcome("parts", WORKERS, 11.0, 10.0),
        outcome("parts", WORKERS, 9.5, 10.0),
        outcome("virtual", DECODE, 12.0, 10.0),
        outcome("virtual", DECODE, 99.0, 10.0, late=True),
        outcome("parts", DECODE, 99.0, None),
    ]
    told = "\n".join(report(found))
    assert "5 predictions, 3 of them with a result, median error 10.0%" in told
    assert f"| {WORKERS} | parts | 2 | 7.5% | 10.0% | +2.5% |" in told
    assert f"| {DECODE} | virtual | 1 | 20.0% | 20.0% | +20.0% |" in told
    assert f"| {DECODE} | parts |" not in told
    assert "890" not in told


def test_a_ledger_without_results_says_so():
    assert "none with a result" in "\n".join(report([outcome("parts", WORKERS, 1.0, None)]))
