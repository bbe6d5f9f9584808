"""The ledger: a chain that an edit breaks, predictions that come before their change, outcomes."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from record_builder import make_measurement, make_record, make_spec

from feedrate.core.files import digest_value
from feedrate.results.ledger import WouldHelp, changes, predict_changes
from feedrate.results.record import MadeFrom, write_record

HOUR = timedelta(hours=1)
EVENTS = [
    {"event": "ceiling", "kind": "loader", "samples": 100, "wall_s": 2.0},
    {"event": "ceiling", "kind": "model", "samples": 100, "wall_s": 5.0},
]


def from_now(begun):
    return (datetime.now(UTC) + begun).isoformat(timespec="seconds")


class Study:
    """The runs of a study, and the files that the job reads and writes."""

    def __init__(self, folder):
        self.folder = folder
        self.ledger, self.out = folder / "ledger.jsonl", folder / "would_help.json"
        self.runs = []

    def run(self, workers=0, rate=14.0, *, begun=-HOUR, host="node-a", **changes):
        """Add a run; `begun`: relative to now."""
        status, repeat = changes.pop("status", "ok"), changes.pop("repeat", 1)
        spec = make_spec(workers, repeat=repeat, **changes)
        record = make_record(rate, spec=spec, status=status)
        made = msgspec.structs.replace(
            record.provenance,
            host=host,
            started_at="" if begun is None else from_now(begun),
        )
        record = msgspec.structs.replace(
            record, provenance=made, made_from=MadeFrom(files={"events.jsonl": "e" * 64})
        )
        run = self.folder / f"{spec.study}/{spec.device}/{spec.cell}/rep{spec.repeat}"
        write_record(run / "record.json", record)
        lines = [json.dumps({"rank": 0, **event}) + "\n" for event in EVENTS]
        (run / "events.jsonl").write_text("".join(lines))
        self.runs.append(run)

    def predict(self):
        listed = self.folder / "runs"
        listed.write_text("".join(f"{run}/record.json\n" for run in self.runs))
        predict_changes(listed, self.ledger, self.out)
        return msgspec.json.decode(self.out.read_bytes(), type=WouldHelp)

    def lines(self):
        return [json.loads(line) for line in self.ledger.read_text().splitlines()]


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


def of_workers(told, level):
    """The outcome of the prediction of so many workers, from the cell without."""
    (found,) = (
        one
        for one in told.outcomes
        if (one.setting, one.level) == ("loader.workers", level)
        and one.cell.startswith("workers=0")
    )
    return found


def test_a_line_holds_the_prediction_its_sources_and_a_chain_of_hashes(study):
    study.run()
    study.predict()
    first, second = study.lines()
    assert second["hash"] == digest_value(second | {"hash": first["hash"]})
    assert first["hash"] == digest_value(first | {"hash": ""})
    assert first["runs"] == ["e" * 64]
    assert first["rule"] == "parts"
    assert datetime.fromisoformat(first["made_at"]) <= datetime.now(UTC)


def test_a_prediction_is_made_once_and_never_changed(study):
    study.run()
    study.predict()
    before = study.ledger.read_text()
    study.run(rate=20.0, repeat=2)
    study.predict()
    assert study.ledger.read_text() == before


def test_an_outcome_is_what_was_measured_later(study):
    study.run()
    told = of_workers(study.predict(), 1)
    assert told.measured is None
    study.run(1, rate=16.0, begun=HOUR)
    study.run(1, rate=16.0, begun=HOUR, repeat=2)
    told = of_workers(study.predict(), 1)
    assert told.measured == 16.0
    assert told.predicted.value == pytest.approx(14.0 * 0.07 / 0.05)
    assert told.error == pytest.approx(14.0 * 0.07 / 0.05 / 16.0 - 1)
    assert not told.late


@pytest.mark.parametrize("events", [None, "no event\n{}\n"], ids=["none", "damaged"])
def test_a_run_without_readable_events_tells_its_rate_only(study, events):
    study.run()
    study.predict()
    study.run(1, rate=16.0, begun=HOUR)
    file = study.runs[-1] / "events.jsonl"
    file.write_text(events) if events else file.unlink()
    assert of_workers(study.predict(), 1).measured == 16.0


def test_a_run_that_does_not_say_when_it_began_is_no_outcome(study):
    study.run()
    study.predict()
    study.run(1, begun=None)
    assert of_workers(study.predict(), 1).late


def test_what_has_run_is_not_predicted(study):
    study.run()
    study.run(1)
    study.predict()
    assert ("workers=0~decode=host", 1) not in {
        (line["cell"], line["level"]) for line in study.lines()
    }


def test_a_prediction_after_the_fact_does_not_count(study):
    study.run()
    study.predict()
    study.run(1, begun=-HOUR)  # its record turned up later
    assert of_workers(study.predict(), 1).late


def test_a_run_on_another_machine_is_no_outcome(study):
    study.run()
    study.predict()
    study.run(1, begun=HOUR, host="node-b")
    assert of_workers(study.predict(), 1).measured is None


@pytest.mark.parametrize("status", ["failed", "invalid", "out_of_memory"])
def test_a_run_that_does_not_count_is_no_outcome_and_no_source(study, status):
    study.run()
    study.run(1, begun=HOUR, status=status)
    assert of_workers(study.predict(), 1).measured is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [lines[0].replace('"level":1', '"level":2'), *lines[1:]],
        lambda lines: lines[1:],
        lambda lines: [*lines[:-1], lines[-1].replace('"predicted":[1', '"predicted":[2')],
        lambda lines: [lines[0][:50], *lines[1:]],
    ],
    ids=["edited", "removed", "last edited", "cut off"],
)
def test_an_edited_ledger_is_found_and_gets_no_new_line(study, spoil):
    study.run()
    study.predict()
    lines = study.ledger.read_text().splitlines(keepends=True)
    spoilt = "".join(spoil(lines))
    assert spoilt != "".join(lines)
    study.ledger.write_text(spoilt)
    study.run(2, repeat=2)
    told = study.predict()
    assert "was changed after it was written" in told.fault
    assert study.ledger.read_text() == spoilt


def test_studies_share_the_ledger_and_see_their_own_predictions(study, tmp_path):
    study.run()
    study.predict()
    other = Study(tmp_path)
    other.run(study="other", loader={"workers": 0, "pin_memory": False})
    told = other.predict()
    assert told.fault == ""
    assert {one.study for one in told.outcomes} == {"other"}
    assert len(other.lines()) == 4


@pytest.mark.parametrize("changed", [{"count": 2}, {"task": "inference"}], ids=str)
def test_several_ranks_and_inference_are_not_predicted(study, changed):
    study.run(**changed)
    assert study.predict().outcomes == []


def test_the_changes_are_those_that_the_suite_can_make():
    spec = make_spec(1, "host")
    assert set(changes(spec)) == {
        ("loader.decode", "reference"),
        ("loader.decode", "cache"),
        ("loader.workers", 0),
        ("loader.workers", 2),
        ("loader.max_tokens", 4),
        ("train.batch_size", 2),
        ("train.batch_size", 8),
    }


def test_the_digest_of_a_target_ignores_the_seed_and_the_repeat(study):
    study.run()
    study.predict()
    study.run(1, begun=HOUR, repeat=3, seed=77)
    assert of_workers(study.predict(), 1).measured == make_measurement(14.0).samples_per_s
