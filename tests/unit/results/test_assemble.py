import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults import fault
from feedrate.config.devices import Device, Peak
from feedrate.core.errors import LogError
from feedrate.results.assemble import build_record
from feedrate.results.trainer_logs import MAX_CHARS, one_line
from run_folder import make_outcome, make_spec, rank_events, write_run

DEVICE = Device(
    label="H100",
    kind="cuda",
    count=2,
    capabilities=[],
    model_pattern="NVIDIA H100 80GB HBM3",
    peaks=[Peak(precision="bf16", datasheet_tflops=989, achievable_tflops=790, source="x")],
)

OTHER = Device(label="Any", kind="cuda", capabilities=[])


def edited(kind, *, ranks=(0, 1), **changes):
    """The events of a good run, with `changes` in every event of a kind on these ranks."""
    spec = make_spec()
    return {
        rank: [
            e | changes if e["event"] == kind and rank in ranks else e
            for e in rank_events(spec, rank)
        ]
        for rank in range(2)
    }


def test_a_good_run_gives_an_ok_record(tmp_path):
    record = build_record(write_run(tmp_path), DEVICE)
    assert record.status == "ok", record.checks
    assert record.cause == ""
    assert (record.study, record.device, record.cell) == ("loading", "gpu", "workers=1")
    assert record.measurement is not None
    assert record.measurement.samples_per_s == pytest.approx(160 / 5)
    assert record.trainer.samples_per_s == 30.5
    assert record.trainer.library == "transformers 5.23.0"
    assert record.model_parameters == 1000
    assert all(check.passed for check in record.checks)


def test_provenance_comes_from_the_supervisor_and_the_first_rank(tmp_path):
    where = build_record(write_run(tmp_path), DEVICE).provenance
    assert (where.commit, where.attempt, where.host) == ("abc", 2, "node-a")
    assert (where.cores_granted, where.cores_of_host) == (8, 64)
    assert where.machine_before["load_1min"] == 0.5
    assert where.packages == {"torch": "2.13.0"}
    assert where.duration_s == 60.0
    assert where.weights_made_on == "cpu"


@pytest.mark.parametrize(
    ("note", "trace"),
    [
        ({"about": "ceiling loader", "message": "no batch"}, ""),
        ({"about": "trace", "message": "trace.json.gz"}, "trace.json.gz"),
        ({"about": "ceiling trace", "message": "no room"}, "none: no room"),
    ],
)
def test_the_record_names_the_trace_or_says_why_there_is_none(tmp_path, note, trace):
    run = write_run(tmp_path)
    with (run / "events.jsonl").open("a") as stream:
        stream.write(json.dumps({"event": "note", "rank": 0, **note}) + "\n")
    assert build_record(run, DEVICE).provenance.trace == trace


@pytest.mark.parametrize(
    ("kind", "changes", "check"),
    [
        ("start", {"world_size": 1}, "world_size"),
        ("step", {"loss": float("nan")}, "loss_finite"),
        ("window", {"samples": 79}, "samples_identity"),
        ("model", {"flops_per_sample": 1e15}, "mfu_at_most_100_percent"),
    ],
)
def test_a_check_that_fails_makes_the_run_invalid(tmp_path, kind, changes, check):
    record = build_record(write_run(tmp_path, ranks=edited(kind, **changes)), DEVICE)
    assert record.status == fault("NaN loss", "local").status
    failed = [c for c in record.checks if not c.passed]
    assert check in [c.name for c in failed]
    assert record.cause.startswith(failed[0].detail)
    assert record.measurement is not None


def test_a_silent_fallback_makes_a_run_invalid(tmp_path):
    spec = make_spec()
    loader = type(spec.settings.loader)(workers=1, decode="device")
    spec = make_spec(
        settings=type(spec.settings)(
            model=spec.settings.model, loader=loader, train=spec.settings.train
        )
    )
    ranks = edited("data", decode="device")
    log = "WARNING: Using Pytorch native dataloader because: no JPEG.\n"
    record = build_record(write_run(tmp_path / "a", spec=spec, ranks=ranks, log=log), DEVICE)
    assert record.status == "invalid"
    assert "Using Pytorch native dataloader because: no JPEG" in record.cause
    record = build_record(write_run(tmp_path / "b", spec=spec, ranks=ranks), DEVICE)
    assert record.status == "ok"
    record = build_record(write_run(tmp_path / "c", log=log), DEVICE)
    assert record.status == "invalid", "nobody asked for what the line speaks of"


@pytest.mark.parametrize("status", ["failed", "out_of_memory"])
def test_the_supervisors_word_stands(tmp_path, status):
    outcome = make_outcome(status=status, cause="The  reason.\n")
    record = build_record(write_run(tmp_path, outcome=outcome), DEVICE)
    assert (record.status, record.cause) == (status, "The reason.")


def test_an_outcome_without_a_cause_names_the_log(tmp_path):
    outcome = make_outcome(status="failed", cause="")
    record = build_record(write_run(tmp_path, ranks={}, outcome=outcome), DEVICE)
    assert (record.status, record.cause) == ("failed", "No cause was given; see train.log.")
    assert record.measurement is None


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=1000))
def test_a_cause_is_one_short_line(text):
    said = one_line(text)
    assert len(said) <= MAX_CHARS
    assert len(said.splitlines()) <= 1


def test_logs_that_cannot_be_read_make_an_invalid_record(tmp_path):
    run = write_run(tmp_path)
    (run / "events.jsonl").write_text('{"event": 1}\nx\n')
    record = build_record(run, DEVICE)
    assert record.status == "invalid"
    assert "events.jsonl, line 1" in record.cause
    (run / "outcome.json").write_text("{")
    assert build_record(run, DEVICE).status == "failed"


def test_without_the_event_the_trainers_files_are_read(tmp_path):
    ranks = {
        r: [e for e in rank_events(make_spec(), r) if e["event"] != "trainer"] for r in range(2)
    }
    run = write_run(tmp_path, ranks=ranks)
    (run / "trainer").mkdir()
    (run / "trainer/train_results.json").write_text('{"train_runtime": 8, "train_loss": 0.25}')
    assert build_record(run, DEVICE).trainer.loss == 0.25


def test_a_folder_without_a_spec_is_one_sentence(tmp_path):
    with pytest.raises(LogError, match=r"spec\.json: no such file"):
        build_record(tmp_path, DEVICE)
    (tmp_path / "spec.json").write_text("{}")
    with pytest.raises(LogError, match=r"spec\.json"):
        build_record(tmp_path, DEVICE)


def test_what_went_wrong_after_the_results_is_kept_as_a_note(tmp_path):
    outcome = make_outcome(cause="after its results were written: exit code 1")
    record = build_record(write_run(tmp_path, outcome=outcome), DEVICE)
    assert (record.status, record.cause) == ("ok", outcome["cause"])


@pytest.mark.parametrize(
    ("reading", "status", "kept"),
    [
        ({}, "ok", []),
        ({"slowed_by": ["its hardware, for heat"]}, "invalid", []),
        (
            {"limited_by": ["a clock that was set"]},
            "ok",
            ["The device's clocks were lowered by a clock that was set."],
        ),
    ],
)
def test_what_disturbs_makes_a_run_invalid_and_what_may_is_kept(tmp_path, reading, status, kept):
    ranks = {rank: rank_events(make_spec(), rank) for rank in range(make_spec().count)}
    machine = {"event": "machine", "rank": 0, "device": reading, "host": {}}
    ranks[0][-1:-1] = [machine, machine]
    record = build_record(write_run(tmp_path, ranks=ranks), OTHER)
    assert (record.status, record.disturbances) == (status, kept)
    assert ("heat" in record.cause) is (status == "invalid")
